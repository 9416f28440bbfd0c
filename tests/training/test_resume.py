"""Resuming, bit for bit: hashes are compared, for a wrong average never shows in a loss."""

import dataclasses
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lingraft.errors import CheckpointError, CorpusError, InterruptedRunError
from lingraft.training import checkpoint as checkpoint_module
from lingraft.training.checkpoint import latest_checkpoint
from lingraft.training.spikes import AlarmRules

STEPS = 7


class KilledError(Exception):
    """Stands for a process that dies."""


def killing(at: int):
    def kill(_, report) -> None:
        if report.step == at:
            raise KilledError

    return kill


def killed_and_resumed(trial, *, at: tuple[int, ...]):
    for step in at:
        with pytest.raises(KilledError):
            trial.run(killing(step))
    return trial.run()


SETTINGS = [
    {"tied": True},
    {"tied": False},
    {"tied": True, "ema": (0.92, 1)},
    {"tied": False, "ema": (0.92, 3)},
    {"tied": True, "train": "embeddings", "ema": (0.5, 3)},
    {"tied": True, "train": "new_embeddings"},
    {"tied": False, "train": "new_embeddings", "ema": (0.92, 1)},
    {"tied": False, "train": ["*.layers.1.*"]},
    {"tied": False, "train": ["new_input_embeddings", "output_embeddings"]},
    {"tied": True, "train": ["top_layers:1", "embeddings"], "table_factor": 0.1, "z_loss": 1e-2},
    {"tied": True, "extra_heads": 2, "ema": (0.92, 3)},
    {"tied": False, "optimizer": "muon"},
    {"tied": True, "optimizer": "adafactor", "train": "new_embeddings"},
    {"tied": True, "optimizer": "sgd"},
    {"tied": True, "schedule": "wsd", "schedule_options": {"decay": 0.4}},
    {"tied": True, "schedule": "infinite", "floor": 0.1, "alarms": AlarmRules(spikes="skip", window=2, sigmas=0.1)},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_o36_o44_killed_twice_between_checkpoints_it_ends_with_the_same_bits(make_trial, settings: dict) -> None:
    whole = make_trial(**settings).run()
    again = killed_and_resumed(make_trial(**settings), at=(3, 5))
    assert [r.step for r in again.reports] == [1, 2, 3, 3, 4, 5, 5, 6, 7]
    assert again.digest() == whole.digest()
    assert again.last_save() == whole.last_save()


@pytest.mark.parametrize(
    "change", [{"micro_batch": 1}, {"micro_batch": 4}, {"micro_batch": 3, "checkpoint_activations": True}], ids=str
)
def test_o36_another_micro_batch_reads_the_same_sequences_and_learns_the_same(make_trial, change: dict) -> None:
    """eps is large, so that what rounding does to a vanishing gradient is not blown up to a whole step."""
    settings = {"optimizer_options": {"eps": 1e-2}, "ema": (0.9, 2)}
    whole, again = make_trial(**settings), make_trial(**settings)
    whole.fingerprints = again.fingerprints = {"recipe": "r", "memory": "two"}
    whole.run()
    with pytest.raises(KilledError):
        again.run(killing(5))
    other = dataclasses.replace(again.with_plan(**change), fingerprints={"recipe": "r", "memory": "other"})
    with pytest.raises(
        CheckpointError, match=r"another micro_batch or checkpoint_activations; .* --accept-changed mem"
    ):
        other.run()
    other.accept, other.reports = ("memory",), []
    other.run()
    told = [latest_checkpoint(trial.checkpoints, trial.fingerprints)[0] for trial in (whole, other)]
    assert told[0].step == told[1].step == STEPS
    assert told[0].state["consumed"] == told[1].state["consumed"]
    assert any("the same sequences, added up in another order" in note for note in other.notes)
    assert [report.step for report in other.reports] == [5, 6, 7]
    for one, two in zip(whole.reports[4:], other.reports, strict=True):
        assert (one.counts, one.read) == (two.counts, two.read)
        assert two.losses == pytest.approx(one.losses, abs=1e-5)
    weights = [checkpoint.tensors("model") for checkpoint in told]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, atol=1e-5, rtol=0)


@pytest.mark.parametrize("at", [(1,), (1, 1), (2, 3, 3, 4, 7)])
def test_o36_any_number_of_kills_gives_the_same_bits(make_trial, at: tuple[int, ...]) -> None:
    settings = {"ema": (0.9, 2)}
    again = killed_and_resumed(make_trial(**settings), at=at)
    assert again.last_save() == make_trial(**settings).run().last_save()


def test_o44_the_first_step_after_resuming_is_the_next_unseen_one(make_trial) -> None:
    whole, again = make_trial().run(), killed_and_resumed(make_trial(), at=(5,))
    by_step = {r.step: r for r in whole.reports}
    assert [r.step for r in again.reports] == [1, 2, 3, 4, 5, 5, 6, 7]
    assert all(r == by_step[r.step] for r in again.reports)


@pytest.mark.parametrize("tied", [True, False])
def test_o54_the_tie_is_one_of_storage_and_survives_a_resume(make_trial, tied: bool) -> None:
    """The head of a tied model is in no checkpoint, that of an untied one is; either way the next loss is the same."""
    whole, again = make_trial(tied=tied).run(), make_trial(tied=tied)
    with pytest.raises(KilledError):
        again.run(killing(3))
    saved = latest_checkpoint(again.checkpoints, again.fingerprints)[0].tensors("model")
    assert ("lm_head.weight" in saved) == (not tied)
    again.reports.clear()
    again.run()
    assert again.reports[0].losses == whole.reports[2].losses
    assert (again.model.lm_head.weight is again.model.model.embed_tokens.weight) == tied


def test_dropout_does_not_make_a_resumed_stage_another(make_trial) -> None:
    def wake(model, head):
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.5
        return head

    whole, again = make_trial().run(head=wake), make_trial()
    with pytest.raises(KilledError):
        again.run(killing(3), head=wake)
    torch.manual_seed(99)
    assert again.run(head=wake).digest() == whole.digest()
    assert whole.digest() != make_trial().run().digest()


def test_a_finished_stage_is_not_trained_again(trial) -> None:
    digest = trial.run().digest()
    trial.reports.clear()
    assert trial.run().digest() == digest
    assert trial.reports == []


@pytest.mark.parametrize("every", [1, 3])
def test_o57_the_average_goes_on_counting_from_where_it_was(make_trial, every: int) -> None:
    """With η = 3, resuming at step 2 or 4 lies between two averages."""
    settings = {"ema": (0.5, every), "checkpoint_at": frozenset({2, 4, STEPS})}
    again = killed_and_resumed(make_trial(**settings), at=(3, 5))
    assert again.last_save() == make_trial(**settings).run().last_save()


@pytest.mark.parametrize("ema", [None, (0.92, 1), (0.92, 3)])
def test_o61_the_weights_do_not_depend_on_how_often_they_are_saved(make_trial, ema) -> None:
    often, never = (make_trial(ema=ema, checkpoint_at=frozenset(at)).run() for at in (range(1, 8), ()))
    assert often.digest() == never.digest()


def test_o65_a_checkpoint_at_an_evaluation_holds_raw_weights_and_the_average_apart(make_trial) -> None:
    seen: dict[int, dict[str, torch.Tensor]] = {}

    def measure(model, step: int) -> None:
        seen[step] = {name: p.detach().clone() for name, p in model.named_parameters()}

    settings = {"ema": (0.5, 3), "measure_at": frozenset({4}), "checkpoint_at": frozenset({4, STEPS})}
    trial = make_trial(**settings)
    with pytest.raises(KilledError):
        trial.run(killing(5), measure)
    saved = latest_checkpoint(trial.checkpoints, trial.fingerprints)[0]
    raw, average = saved.tensors("model"), saved.tensors("average")
    assert all(torch.equal(raw[name], weight) for name, weight in seen[4].items())
    assert any(not torch.equal(raw[name], average[name]) for name in raw)
    assert trial.run().last_save() == make_trial(**settings).run().last_save()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 4
    path.write_bytes(content)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("name", ["model", "optimizer", "average"])
@pytest.mark.parametrize("damage", [truncate, flip, zero, Path.unlink])
def test_o63_a_damaged_newest_falls_back_says_so_and_ends_with_the_same_bits(make_trial, name: str, damage) -> None:
    trial = make_trial(ema=(0.92, 3))
    with pytest.raises(KilledError):
        trial.run(killing(5))
    damage(trial.checkpoints / "step-00000004" / f"{name}.safetensors")
    trial.reports.clear()
    trial.run()
    assert [r.step for r in trial.reports] == [3, 4, 5, 6, 7]
    notes = [note for note in trial.notes if "passed over" in note]
    assert notes[0].startswith(f"checkpoint passed over: step-00000004: {name}.safetensors ")
    assert trial.last_save() == make_trial(ema=(0.92, 3)).run().last_save()


def test_no_sound_checkpoint_stops_instead_of_beginning_again(trial) -> None:
    with pytest.raises(KilledError):
        trial.run(killing(5))
    for path in trial.checkpoints.glob("*/model.safetensors"):
        zero(path)
    with pytest.raises(CheckpointError, match="no checkpoint can be trusted"):
        trial.run()


@pytest.mark.parametrize("key", ["recipe", "tokenizer"])
def test_a_stage_with_another_recipe_or_tokenizer_does_not_resume(trial, key: str) -> None:
    with pytest.raises(KilledError):
        trial.run(killing(3))
    trial.fingerprints = {"recipe": "r"} | {key: "other"}
    with pytest.raises(CheckpointError, match=f"another {key}"):
        trial.run()


def test_a_stop_and_the_same_command_again_give_the_same_bits(make_trial) -> None:
    trial = make_trial(ema=(0.92, 3))
    with pytest.raises(InterruptedRunError):
        trial.run(should_stop=lambda: len(trial.reports) == 3)
    assert trial.run().last_save() == make_trial(ema=(0.92, 3)).run().last_save()


def test_a_checkpoint_of_another_trainable_set_is_refused(make_trial) -> None:
    trial = make_trial(tied=False, train="embeddings")
    with pytest.raises(KilledError):
        trial.run(killing(3))
    trial.train = "new_embeddings"
    with pytest.raises(CheckpointError, match="it trained other parameters than this stage does"):
        trial.run()


def test_text_that_changed_under_a_checkpoint_is_noticed(make_trial) -> None:
    """The documents behind a stage are part of its fingerprint; this is the check that the loop itself makes."""
    trial = make_trial()
    with pytest.raises(KilledError):
        trial.run(killing(3))
    trial.tokens = {name: store.tokens[::-1].copy() for name, store in trial.loader()._stores.items()}
    with pytest.raises(CorpusError, match="step 3: the next batch is not the one that the checkpoint expects"):
        trial.run()


def test_what_was_carried_from_the_stage_before_comes_back_with_a_checkpoint(make_trial) -> None:
    """Rows of different age, killed and resumed."""
    kept: dict = {}
    make_trial(tied=False, train="new_embeddings").run(finish_optimizer=kept.update)
    whole, again = make_trial(tied=False), make_trial(tied=False)
    for trial in (whole, again):
        trial.carried = kept
    whole.run()
    with pytest.raises(KilledError):
        again.run(killing(3))
    assert again.run().last_save() == whole.last_save()
    assert whole.digest() != make_trial(tied=False).run().digest()


def test_only_the_newest_two_are_kept(trial) -> None:
    trial.run()
    assert sorted(p.name for p in trial.checkpoints.iterdir()) == ["step-00000006", "step-00000007"]


def test_state_of_the_outside_comes_back(trial) -> None:
    given: list[int] = []
    with pytest.raises(KilledError):
        trial.run(killing(5), save_state=lambda: {"measured_bytes": 10 * len(trial.reports)})
    trial.run(load_state=lambda state: given.append(state["measured_bytes"]))
    assert given == [40]


def test_what_was_consumed_is_part_of_the_state(make_trial) -> None:
    one, other = make_trial().run(), make_trial()
    other.tokens = {"en": one.loader()._stores["en"].tokens[::-1]}
    digests = [latest_checkpoint(t.checkpoints, t.fingerprints)[0].state["consumed"] for t in (one, other.run())]
    assert digests[0] != digests[1]


SCRIPT = """
import sys
from pathlib import Path

sys.path.insert(0, {tests!r})
from conftest import Trial

Trial(Path({base!r}), Path({checkpoints!r})).with_plan(**{settings!r}).run(
    lambda model, report: print(report.step, flush=True)
)
print("done", flush=True)
"""


def test_o63_killed_by_the_system_at_a_random_step_it_ends_with_the_same_bits(make_trial) -> None:
    settings = {"ema": (0.92, 3), "num_steps": 40, "checkpoint_at": frozenset(range(3, 40, 3)) | {40}}
    whole, trial = make_trial(**settings).run(), make_trial(**settings)
    script = SCRIPT.format(
        tests=str(Path(__file__).parent), base=str(trial.base), checkpoints=str(trial.checkpoints), settings=settings
    )
    for kill_at in (random.randint(1, 20), None):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                if line.strip() == str(kill_at):
                    process.send_signal(signal.SIGKILL)
        assert process.returncode == (0 if kill_at is None else -signal.SIGKILL), kill_at
    assert trial.last_save() == whole.last_save()


def test_while_losses_are_not_calm_the_checkpoint_from_before_stays(make_trial) -> None:
    """A loss that is not finite at steps 3 and 5: none of the checkpoints after step 2 may push out that of step 2."""
    hooks: list = []

    def breaking(model, report) -> None:
        weight = next(iter(model.parameters()))
        while hooks:
            hooks.pop().remove()
        if report.step in (2, 4):
            hooks.append(weight.register_hook(lambda gradient: gradient * float("nan")))

    trial = make_trial(checkpoint_at=frozenset(range(1, STEPS)), alarms=AlarmRules(window=8)).run(breaking)
    assert {path.name for path in trial.checkpoints.iterdir()} == {"step-00000002", "step-00000006"}
    assert sum("stays beside it" in note for note in trial.notes) == 4


def test_other_versions_are_told_and_no_error(make_trial, monkeypatch) -> None:
    trial = make_trial()
    with pytest.raises(KilledError):
        trial.run(killing(3))
    monkeypatch.setattr(checkpoint_module, "_versions", lambda: {"torch": "9.9"})
    trial.run()
    told = [note for note in trial.notes if "from step 3 on with other versions (torch " in note]
    assert len(told) == 1
    assert "→ 9.9" in told[0]
