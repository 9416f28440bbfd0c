"""The page as text: whole, self-contained, escaped, honest about what is missing."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import pytest

from lingraft.errors import RunFolderError
from lingraft.measurement import Measurement, write_measurements
from lingraft.report.page import render_page, write_report
from lingraft.report.reading import read_record

VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """Collects tags, attributes, scripts and text, and checks that elements close in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.text += data

    def values(self, attribute: str) -> list[str | None]:
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


@pytest.fixture(scope="module")
def outline(finished_run: Path) -> Outline:
    return Outline(render_page([read_record(finished_run)]))


def test_every_section_is_there_and_linked(outline: Outline) -> None:
    assert outline.open == []
    identifiers = outline.values("id")
    assert len(identifiers) == len(set(identifiers))
    links = [str(href)[1:] for href in outline.values("href") if str(href).startswith("#")]
    assert len(links) == 12
    assert set(links) <= set(identifiers)
    assert [t for t, _ in outline.tags if t in ("header", "nav", "main", "footer", "h1")] == [
        "header", "h1", "nav", "main", "footer"]  # fmt: skip


def test_every_table_has_a_caption_and_scopes(outline: Outline) -> None:
    tags = [tag for tag, _ in outline.tags]
    assert tags.count("table") == tags.count("caption") > 10
    assert all("scope" in attributes for tag, attributes in outline.tags if tag == "th")


def test_every_chart_has_a_label_and_its_numbers(outline: Outline) -> None:
    charts = [attributes for _, attributes in outline.tags if "data-figure" in attributes]
    figures = json.loads(outline.scripts[0])
    assert len(charts) == len(figures) == [tag for tag, _ in outline.tags].count("figure") == 10
    assert all(c["role"] == "img" and str(c["aria-label"]).startswith("Chart: ") for c in charts)


def test_the_page_loads_nothing(outline: Outline) -> None:
    assert outline.values("src") == []
    outside = [h for h in outline.values("href") if h is not None and not h.startswith(("#", "data:"))]
    assert outside == ["https://arxiv.org/abs/2506.00288"]
    style = resources.files("lingraft.report").joinpath("page.css").read_text(encoding="utf-8")
    assert "@import" not in style
    assert "url(" not in style


def test_the_policy_allows_exactly_our_two_scripts(outline: Outline) -> None:
    policy = next(a["content"] for _, a in outline.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    ours = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in outline.scripts[1:]}
    assert len(outline.scripts) == 3
    assert allowed == ours


def test_the_numbers_are_on_the_page(outline: Outline) -> None:
    for words in ("1.900", "[1.870, 1.930]", "−25.1 %", "24,512", "SmolLM2-135M", "every new token reachable",
                  "␣euskara",
                  "Euskal Herria Europako", "too short", "365.0", "2.13.0", "embeddings-only"):  # fmt: skip
        assert words in outline.text, words


def test_hostile_text_is_only_ever_text(hostile_run: Path) -> None:
    text = render_page([read_record(hostile_run)])
    outline = Outline(text)
    assert outline.open == []
    assert len(outline.scripts) == 3
    assert not {"img", "iframe", "object", "form"} & {tag for tag, _ in outline.tags}
    assert not [name for _, attributes in outline.tags for name in attributes if name.startswith("on")]
    assert "<script>window.hostile = 1; alert(1)</script>" in outline.text
    page = text.replace(outline.scripts[1], "")  # plotly has some of these in its own tables
    assert not [c for c in page if (ord(c) < 32 and c not in "\n\t") or c in "\x7f\x9b\u202e\u2066\u061c\u200f\u2028"]
    assert "safe⟦U+202E⟧gnp.exe" in outline.text
    assert "␛[31mred" in outline.text
    assert "password" not in page
    assert "hf_aaaa" not in page


def test_a_stopped_run_says_what_is_missing(unfinished_run: Path, tmp_path: Path) -> None:
    outline = Outline(write_report([unfinished_run], tmp_path / "r.html").read_text("utf-8"))
    assert "Too early to say" in outline.text
    assert "The run is not finished: 5.12k of 102k tokens." in outline.text
    assert "samples.jsonl (samples before and after): not there." in outline.text
    assert "No vocabulary checks are recorded." in outline.text


@pytest.mark.parametrize("name", ["recipe.yaml", "measurements.jsonl"])
def test_either_file_alone_makes_a_page(finished_run: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / name).write_bytes((finished_run / name).read_bytes())
    assert Outline(render_page([read_record(folder)])).open == []


def test_damaged_files_are_named_and_the_rest_is_shown(finished_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "vocabulary").mkdir(parents=True)
    good = (finished_run / "measurements.jsonl").read_bytes().split(b"\n")[:3]
    nan = b'{"stage": "base", "tokens": 0, "name": "x", "value": NaN}'
    (folder / "measurements.jsonl").write_bytes(b"\n".join([*good, nan, b"not json", *good, b""]))
    (folder / "recipe.yaml").write_text("name: [", "utf-8")
    (folder / "vocabulary/gates.json").write_text("{", "utf-8")
    (folder / "environment.json").write_text("[1, 2]", "utf-8")
    record = read_record(folder)
    assert len(record.rows) == 3
    missing = " ".join(record.missing)
    assert "damaged after 4 rows" in missing
    assert "1 rows hold no finite number" in missing
    assert "vocabulary/gates.json: damaged" in missing
    assert "recipe.yaml:" in missing
    assert Outline(render_page([record])).open == []


def test_runs_stand_side_by_side_with_the_diff_of_their_recipes(finished_run: Path, other_run: Path) -> None:
    outline = Outline(render_page([read_record(finished_run), read_record(other_run)]))
    assert outline.open == []
    assert "stages.1.mix.options.mix.eu: 0.8 → 1.0" in outline.text
    assert outline.text.count("A clear gain in Basque (eu)") == 2
    assert "Do not use it as it is" in outline.text


def test_the_same_run_gives_the_same_bytes(finished_run: Path, tmp_path: Path) -> None:
    one, two = (write_report([finished_run], tmp_path / f"{i}.html").read_bytes() for i in range(2))
    assert one == two
    assert len(one) < 6_000_000


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=re.escape(str(tmp_path))):
        write_report([tmp_path], tmp_path / "r.html")
    with pytest.raises(RunFolderError, match="at least one"):
        write_report([], tmp_path / "r.html")


def test_the_room_needs_no_torch() -> None:
    code = (
        "import sys, lingraft.report; "
        "print(*sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'transformers', 'tokenizers'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# Several runs -----------------------------------------------------------------------------------------------------------


def test_runs_that_cannot_be_compared_say_why(finished_run: Path, other_run: Path, unfinished_run: Path) -> None:
    """No folder of this machine is named; what is there is still shown side by side."""
    outline = Outline(render_page([read_record(run) for run in (finished_run, other_run, unfinished_run)]))
    assert "These runs are not compared item by item, so no recommendation is given" in outline.text
    assert "a comparison needs two finished runs, and 0 of these are" in outline.text
    assert "unfinished: its last stage, continued-pretraining, is not done" in outline.text
    assert str(finished_run.parent) not in outline.text
    assert outline.text.index("Which to ship") < outline.text.index("What was gained")


def test_damaged_items_leave_the_page_standing(finished_run: Path, other_run: Path, tmp_path: Path) -> None:
    folders = []
    for run in (finished_run, other_run):
        folder = tmp_path / run.name
        shutil.copytree(run, folder)
        (folder / "steps").mkdir()
        (folder / "steps" / "stage-2-continued-pretraining.json").write_text('{"inputs": "x", "record": {}}')
        item = {"stage": "base", "tokens": 0, "name": "bits_per_byte", "item": "a", "scores": {"bits": "many"}}
        (folder / "items.jsonl").write_text(json.dumps(item) + "\n")
        folders.append(folder)
    outline = Outline(render_page([read_record(folder) for folder in folders]))
    assert re.search("so no recommendation is given|could be judged", outline.text)
    assert "What was gained" in outline.text


def test_notes_that_hold_for_all_runs_are_said_once(finished_run: Path, other_run: Path, unfinished_run: Path) -> None:
    outline = Outline(render_page([read_record(run) for run in (finished_run, other_run, unfinished_run)]))
    assert outline.text.count("Bits per byte: how many bits") == 1
    assert "unfinished: The run is not finished: 5.12k of 102k tokens." in outline.text


def test_what_a_stage_took_holds_its_measuring(finished_run: Path, tmp_path: Path) -> None:
    """70 s in a stage, 24 of them measuring: 70 in all, not 94."""
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(finished_run / "recipe.yaml", folder)
    rows = [Measurement("embeddings-only", 1, f"seconds/{name}", value) for name, value in
            (("measuring", 24.0), ("stage", 70.0))]  # fmt: skip
    write_measurements(folder / "measurements.jsonl", rows)
    text = Outline(render_page([read_record(folder)])).text
    cost = text[text.index("Seconds by phase") :][:200]
    assert "of these, measuring24.0" in cost
    assert "all phases70.0" in cost


def test_what_the_model_writes_is_told_in_words(everything_run: Path) -> None:
    """O-56: the share of output in the target language, for beginnings of documents and for questions."""
    text = Outline(render_page([read_record(everything_run)])).text
    for style in ("beginnings of documents", "questions"):
        assert f"{style}: answers in the target language" in text
