"""The alarm in a run: early, with advice, once; a stop is answered or stays; resumed runs know what they knew."""

import signal

import pytest

from lingraft.errors import ForgettingError, InterruptedRunError, RecipeError, RunFolderError
from lingraft.model.base import load_model
from lingraft.model.freeze import weights_digest
from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.alarming import advice, share_of
from lingraft.pipeline.plan import make_plan
from lingraft.pipeline.progress import Silent
from lingraft.pipeline.settings import watch_steps

DESTROYING = (
    "stages.0.tokens=128",
    "stages.1.tokens=3200",
    "stages.1.mix={eu: 1.0}",
    "stages.1.lr={schedule: constant, peak: 3e-2, warmup: 0%}",
    "stages.1.checkpoint_every=1280",
    "embeddings.max_source_mass=1.0",
    "embeddings.max_source_rise=9",
    "measure={at: [50%], probes: [], validation_bytes: 1000, alarm: {every: 256, ALARM}, drift: {tokens: 0, spectral_layers: 0}}",
)


def overrides(alarm: str = "shift: 0.1") -> tuple[str, ...]:
    return tuple(text.replace("ALARM", alarm) for text in DESTROYING)


class Notes(Silent):
    """Keeps what is noted, and may press Ctrl-C after a step of the second stage."""

    def __init__(self, stop_after: int = 0) -> None:
        self.notes: list[str] = []
        self._stop_after, self._stage = stop_after, ""

    def note(self, text: str) -> None:
        self.notes.append(text)

    def stage(self, name: str, num_steps: int, tokens_per_step: int, done: int) -> None:
        self._stage = name

    def step(self, step: int, losses: dict[str, float], learning_rate: float, tokens_per_second: float) -> None:
        if self._stop_after and (self._stage, step) == ("second", self._stop_after):
            signal.raise_signal(signal.SIGINT)

    @property
    def alarms(self) -> list[str]:
        return [note for note in self.notes if note.startswith("forgetting at")]


def alarms(run) -> list[tuple[str, int, float]]:
    rows = [row for row in run.measurements() if row.name.startswith("alarm/forgetting/")]
    return [(row.name.rpartition("/")[2], row.tokens, row.value) for row in rows]


def digest(run) -> str:
    return weights_digest(load_model(run.path("stages", "2-second", "model")))


@pytest.fixture(scope="module")
def warned(tmp_path_factory, make_module_recipe):
    """A run that is warned and goes on to its end, with what it was told."""
    told = Notes()
    run = adapt(
        make_module_recipe(*overrides()), tmp_path_factory.mktemp("warned") / "run", until="second", progress=told
    )
    return run, told


def test_a_destroying_rate_is_heard_long_before_the_end(warned) -> None:
    """O-58: small batches, a rate far too high, no replay: advice comes in the first tenth of the stage."""
    run, told = warned
    stage = run.recipe.stages[1]
    before = run.recipe.stages[0].tokens
    first = min(tokens for _, tokens, _ in alarms(run)) - before
    assert first <= 0.1 * stage.tokens
    assert "What may help: more replay: no en text is in the mix" in told.alarms[0]
    assert "a lower rate: stages.1.lr.peak is 0.03" in told.alarms[0]
    assert "averaging" in told.alarms[0]
    assert sum("What may help" in note for note in told.alarms) <= 2
    assert {rule for rule, _, _ in alarms(run)} >= {"shift"}


def test_between_measuring_points_only_what_the_alarm_asks_for_is_measured(warned) -> None:
    run, _ = warned
    measured = {(r.tokens, r.language) for r in run.measurements() if (r.stage, r.name) == ("second", "bits_per_byte")}
    full = {tokens for tokens, language in measured if language == "eu"}
    assert full == {128 + 12 * 128, 128 + 3200}
    assert {tokens for tokens, language in measured if language == "en"} == {128 + 256 * n for n in range(1, 13)} | full


def test_stopped_and_gone_on_from_it_neither_repeats_nor_loses_an_alarm(warned, make_recipe, tmp_path) -> None:
    whole, told = warned
    recipe, first, second = make_recipe(*overrides()), Notes(stop_after=15), Notes()
    with pytest.raises(InterruptedRunError):
        adapt(recipe, tmp_path / "run", until="second", progress=first)
    again = adapt(recipe, tmp_path / "run", until="second", progress=second)
    assert alarms(again) == alarms(whole)
    assert first.alarms + second.alarms == told.alarms
    assert digest(again) == digest(whole)


def test_a_stop_keeps_a_checkpoint_and_waits_for_an_answer(warned, make_recipe, tmp_path) -> None:
    whole, _ = warned
    recipe = make_recipe(*overrides("shift: 0.1, action: stop"))
    with pytest.raises(ForgettingError, match=r"What may help: more replay.*A checkpoint is kept"):
        adapt(recipe, tmp_path / "run", until="second")
    checkpoints = list(tmp_path.glob("run/stages/2-second/checkpoints/step-*"))
    assert checkpoints
    for _ in range(2):
        with pytest.raises(ForgettingError, match=r"stopped this run in stage 'second' .* nothing has changed since"):
            adapt(recipe, tmp_path / "run", until="second")
    run = adapt(recipe, tmp_path / "run", until="second", accept_changed=["alarm"])
    assert digest(run) == digest(whole)
    assert [found for found in alarms(run) if found[0] != "accepted"] == alarms(whole)
    assert adapt(recipe, tmp_path / "run", until="second").finished("stage-2-second")


@pytest.mark.parametrize(
    "answer",
    [
        "stages.1.mix={en: 1.0}",
        pytest.param("measure.alarm.shift=null", marks=pytest.mark.slow),
        pytest.param("measure.alarm.action=warn", marks=pytest.mark.slow),
    ],
)
def test_another_limit_or_another_mix_is_an_answer(make_recipe, tmp_path, answer: str) -> None:
    """Another mix may take in a corpus that nothing had read; it stops again only when more is lost than before."""
    first = overrides("source_rise: null, action: stop")
    with pytest.raises(ForgettingError):
        adapt(make_recipe(*first), tmp_path / "run", until="second")
    accepted = ["mix"] if "mix" in answer else []
    changed = make_recipe(*first, answer)
    if accepted:
        with pytest.raises(RunFolderError, match="another recipe"):
            adapt(changed, tmp_path / "run", until="second")
        with pytest.raises(ForgettingError, match="forgetting at"):
            adapt(changed, tmp_path / "run", until="second", accept_changed=accepted)
        run_alarms = [value for rule, _, value in alarms_of(tmp_path / "run") if rule == "shift"]
        assert run_alarms[-1] > run_alarms[0]
    else:
        assert adapt(changed, tmp_path / "run", until="second").finished("stage-2-second")


def alarms_of(folder) -> list[tuple[str, int, float]]:
    from lingraft import Run

    return alarms(Run(folder))


def test_a_stage_that_harms_nothing_is_not_warned_of(make_recipe, tmp_path) -> None:
    told = Notes()
    gentle = ("stages.1.lr={schedule: constant, peak: 1e-5, warmup: 0%}", "stages.1.tokens=1024")
    run = adapt(make_recipe(*overrides(), *gentle), tmp_path / "run", until="second", progress=told)
    assert alarms(run) == []
    assert told.alarms == []


def test_the_plan_warns_of_the_rate_per_token(make_recipe) -> None:
    """O-58: small batches, many steps, a default-sized rate."""
    plan = make_plan(make_recipe("stages.1.tokens=12800", "stages.1.lr={peak: 9e-2, schedule: constant, warmup: 0%}"))
    assert any("stages.1.lr.peak: 0.09 every 128 tokens is much" in warning for warning in plan.warnings)


def test_a_probe_that_is_not_measured_is_refused_by_the_plan(make_recipe) -> None:
    override = "measure={probes: [copain], alarm: {probe: position/accuracy}}"
    with pytest.raises(RecipeError, match=r"measure\.alarm\.probe: 'position/accuracy' is not measured .*copain"):
        make_plan(make_recipe(override))
    make_plan(make_recipe("measure={probes: []}"))


def test_a_score_that_the_probe_does_not_give_is_refused_before_anything_trains(make_recipe, tmp_path) -> None:
    """The alarm would be silent for ever."""
    probes = "measure={at: [100%], probes: [{name: random_copy, num_items: 2}], validation_bytes: 1000, alarm: ALARM}"
    loose = ("embeddings.max_source_mass=1.0", "embeddings.max_source_rise=9")
    recipe = make_recipe(probes.replace("ALARM", "{probe: random_copy/acuracy}"), *loose)
    with pytest.raises(RecipeError, match=r"'random_copy/acuracy' is no score .*did you mean 'random_copy/accuracy'"):
        adapt(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "stages" / "1-first" / "model").exists()


def test_a_word_that_nothing_listens_to_is_refused(make_recipe, tmp_path) -> None:
    with pytest.raises(RecipeError, match="'alarms' is not one of mix, data, memory, alarm, did you mean 'alarm'"):
        adapt(make_recipe(), tmp_path / "run", accept_changed=["alarms"])


def test_advice_leaves_out_what_the_recipe_does(make_recipe) -> None:
    plain = advice(make_recipe(), 1, 0.5)
    assert not any(line.startswith("more replay") for line in plain)
    assert "more replay: only 10% of the stage is en" in advice(make_recipe(), 1, 0.1)[0]
    cared_for = make_recipe("stages.1.ema={decay: 0.92}", "stages.1.guards=[l2_start]")
    assert [line.partition(":")[0] for line in advice(cared_for, 1, 0.5)] == ["a lower rate"]


def test_points_of_the_alarm_are_those_that_are_not_measured_anyway(make_recipe) -> None:
    recipe = make_recipe("measure={at: [50%], alarm: {every: 10%}}", "stages.1.tokens=1280")
    assert watch_steps(recipe, recipe.stages[1]) == {1, 2, 3, 4, 6, 7, 8, 9}
    off = make_recipe("measure={alarm: {every: 10%, action: 'off'}}")
    assert watch_steps(off, off.stages[1]) == frozenset()


def test_shares_of_parallel_text_count_by_half() -> None:
    shares = {"en": {"en": 1.0}, "eu": {"eu": 1.0}, "pairs": {"en": 0.5, "eu": 0.5}}
    assert share_of("en", {"en": 10, "eu": 70, "pairs": 20}, shares) == pytest.approx(0.2)
    assert share_of("en", {}, shares) == 0
