"""What reaches a terminal: hostile text as it is, plain lines where there is no terminal, tables of 80 columns."""

import dataclasses
import io
import re

import pytest
from rich.console import Console

from lingraft.measurement import Measurement
from lingraft.pipeline.plan import make_plan
from lingraft.recipe_file import load_recipe
from lingraft.terminal import TerminalProgress, show_plan

HOSTILE = "[red]eu[/bold] [/] [link=https://x.y]z \x1b[31m\x1b]0;title\x07 \x9b31m \u202e \\"
SHOWN = "[red]eu[/bold] [/] [link=https://x.y]z ␛[31m␛]0;title␇ ⟦U+009B⟧31m ⟦U+202E⟧ \\"
RECIPE = """
name: demo
base_model: {base}
languages: {{source: en, target: eu}}
corpora: {{eu: {{path: {corpora}/eu.jsonl, validation: 20%, max_epochs: 1e9}}, en: {{path: {corpora}/en.jsonl, validation: 20%}}}}
vocabulary: {{new_tokens: 40, min_count: 3}}
stages:
  - {{name: embeddings-only, train: new_embeddings, tokens: 512, mix: {{eu: 1.0}}, lr: {{peak: 1e-2}},
      batch: {{tokens: 128, sequence_length: 32}}}}
  - {{name: continued-pretraining, tokens: 128M, mix: {{eu: 1.0}}, lr: {{peak: 1e-3}}, ema: {{decay: 0.92}},
      batch: {{tokens: 131072, sequence_length: 128}}}}
"""


def console(*, terminal: bool, width: int = 80) -> Console:
    """Return a console that writes to memory."""
    colours = "standard" if terminal else None
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, emoji=False, color_system=colours)


def written(to: Console) -> str:
    """Return what was written, the colours that rich itself gives left out."""
    text = to.file.getvalue()  # type: ignore[attr-defined]
    return re.sub(r"\x1b\[(?:[0-9;]*m|\?25[lh]|[0-9]*[A-K])", "", text)


def tell_everything(progress: TerminalProgress, text: str) -> None:
    """Call every method of a listener with a text wherever one goes."""
    progress.phase(text)
    progress.note(text)
    progress.stage(text, 2, 128, 0)
    progress.step(1, {text: 2.5}, 1e-3, 1234.0)
    progress.step(2, {text: 2.0}, 1e-3, 1234.0)
    progress.measured([Measurement(text, 256, "bits_per_byte", 1.25, text)])
    progress.close()


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_text_is_shown_as_it_is(terminal):
    out = console(terminal=terminal, width=400)
    tell_everything(TerminalProgress(out), HOSTILE)
    raw, shown = out.file.getvalue(), written(out)
    for bad in ("\x1b[31m", "\x1b]0;", "\x07", "\x9b", "\u202e"):
        assert bad not in raw
    assert shown.count(SHOWN) >= 5  # the title, the remark, the losses, the stage and the language that were measured


def test_text_that_looks_like_an_emoji_code_stays():
    out = console(terminal=False)
    TerminalProgress(out).note(":bomb:")
    assert ":bomb:" in written(out)


def test_where_there_is_no_terminal_plain_lines_are_written():
    out = console(terminal=False)
    tell_everything(TerminalProgress(out), "eu")
    lines = out.file.getvalue().splitlines()
    assert "\x1b" not in out.file.getvalue()
    assert "\r" not in out.file.getvalue()
    assert [re.sub(r"^\d\d:\d\d ", "", line).strip() for line in lines] == [
        "eu",
        "eu",
        "step 1/2  128/256 tokens  1,234 tok/s  loss eu 2.500  lr 0.001",
        "step 2/2  256/256 tokens  1,234 tok/s  loss eu 2.000  lr 0.001",
        "measured eu: bits per byte eu 1.250",
    ]


def test_lines_come_about_every_ten_seconds_and_at_the_end(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("lingraft.terminal.time.perf_counter", lambda: now[0])
    out = console(terminal=False)
    progress = TerminalProgress(out)
    progress.stage("first", 30, 128, 0)
    for step in range(1, 31):
        now[0] += 1
        progress.step(step, {"eu": 2.0}, 1e-3, 100.0)
    steps = [int(n) for n in re.findall(r"step (\d+)/30", written(out))]
    assert steps == [1, 12, 23, 30]
    assert "step 12/30" in written(out)
    assert "18 s left" in written(out)


def test_a_stage_that_goes_on_counts_from_where_it_was(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("lingraft.terminal.time.perf_counter", lambda: now[0])
    out = console(terminal=False)
    progress = TerminalProgress(out)
    progress.stage("first", 100, 128, 50)
    for step in (51, 52):
        now[0] += 20
        progress.step(step, {"eu": 2.0}, 1e-3, 100.0)
    assert "960 s left" in written(out)  # 48 steps of 20 s


def test_a_part_of_measuring_is_one_line_and_leaves_the_bar():
    out = console(terminal=False)
    TerminalProgress(out).part("probes")
    assert written(out) == "00:00   measuring: probes\n"


def test_an_estimate_is_marked_in_every_column(plan):
    corpus = dataclasses.replace(plan.corpora[0], bytes=2_370_000, words=277_935, tokens=402_000, is_estimate=True)
    out = console(terminal=False, width=200)
    show_plan(dataclasses.replace(plan, corpora=(corpus,)), out)
    assert "~2.37 MB" in written(out)
    assert "~278k" in written(out)
    assert "~402k" in written(out)


def test_what_is_no_headline_is_not_shown():
    out = console(terminal=False)
    TerminalProgress(out).measured([Measurement("base", 0, "norm/input/old", 1.0)])
    assert written(out) == ""


@pytest.fixture
def plan(tmp_path, tied_folder, corpora_folder):
    """A plan of two stages with long names and large numbers."""
    path = tmp_path / "demo.yaml"
    path.write_text(RECIPE.format(base=tied_folder, corpora=corpora_folder))
    return make_plan(load_recipe(path))


@pytest.mark.parametrize("terminal", [False, True])
def test_a_plan_fits_80_columns_with_nothing_cut_off(plan, terminal):
    out = console(terminal=terminal)
    show_plan(plan, out)
    lines = written(out).splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in written(out)
    for shown in (
        "continued-pretraining",
        "new_embeddings (1.28k weights)",
        "977 of 131k tokens",
        "live, decay 0.92",
    ):
        assert any(shown in line for line in lines), shown


def test_what_a_pattern_stands_for_is_told_as_a_bound(plan):
    given = plan.stages[0].stage.model_copy(update={"train": ("*norm*",)})
    out = console(terminal=False, width=200)
    show_plan(dataclasses.replace(plan, stages=(dataclasses.replace(plan.stages[0], stage=given),)), out)
    assert "*norm* (at most 1.28k weights)" in written(out)


def test_every_warning_of_a_plan_is_shown(plan):
    out = console(terminal=False, width=400)
    show_plan(plan, out)
    assert plan.warnings
    assert all(f"warning: {warning}" in written(out) for warning in plan.warnings)


def test_hostile_text_in_a_plan_is_shown_as_it_is(plan):
    stage = dataclasses.replace(
        plan.stages[0], stage=plan.stages[0].stage.model_copy(update={"name": HOSTILE, "train": (HOSTILE,)})
    )
    corpus = dataclasses.replace(plan.corpora[0], name=HOSTILE)
    hostile = dataclasses.replace(
        plan, base_name=HOSTILE, stages=(stage,), corpora=(corpus,), warnings=(HOSTILE,),
        recipe=plan.recipe.model_copy(update={"name": HOSTILE}),
    )  # fmt: skip
    out = console(terminal=True, width=600)
    show_plan(hostile, out)
    raw = out.file.getvalue()
    assert not [bad for bad in ("\x1b[31m", "\x1b]", "\x9b", "\u202e") if bad in raw]
    assert (
        written(out).count(SHOWN) == 6
    )  # name, base, corpus, stage, what trains, warning; the course's title is wrapped


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (119, "119 s"), (120, "2.0 min"), (7200, "2.0 h"), (864_000, "10.0 days")]
)
def test_durations(plan, seconds, shown):
    out = console(terminal=False)
    show_plan(dataclasses.replace(plan, stages=(dataclasses.replace(plan.stages[0], seconds=seconds),)), out)
    assert f"about {shown} " in written(out)
