"""The loop of one stage: what a step does, and when it refuses."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from lingraft.corpus.apportionment import apportion
from lingraft.corpus.loader import SequenceLoader
from lingraft.corpus.mixing import Schedule
from lingraft.errors import FrozenMovedError, InterruptedRunError, TrainingError
from lingraft.model.base import Head, load_model
from lingraft.training.checkpoint import latest_checkpoint
from lingraft.training.companion import Companion
from lingraft.training.spikes import AlarmRules

STEPS, NUM_OLD, NUM_IDS = 7, 380, 410


def weights_of(model) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_a_step_reports_what_it_did(trial) -> None:
    reports = trial.run().reports
    assert [r.step for r in reports] == [1, 2, 3, 4, 5, 6, 7]
    assert [r.learning_rate for r in reports[:3]] == pytest.approx([5e-3, 1e-2, 1e-2])
    assert all((r.tokens, r.counts) == (64, {"en": 16, "eu": 48}) for r in reports)
    assert all(r.gradient_norm > 0 and r.losses.keys() == {"en", "eu"} for r in reports)


def test_the_first_losses_are_those_of_the_starting_weights(trial) -> None:
    first = trial.run().reports[0]
    batch = trial.loader().batch(0)
    model = load_model(trial.base)
    with torch.no_grad():
        logits = model(torch.from_numpy(batch.tokens[:, :-1])).logits[..., :NUM_IDS]
    losses = cross_entropy(logits.transpose(1, 2), torch.from_numpy(batch.tokens[:, 1:]), reduction="none").mean(1)
    for name in ("eu", "en"):
        rows = [value for value, own in zip(losses.tolist(), batch.corpora, strict=True) if own == name]
        assert first.losses[name] == pytest.approx(sum(rows) / len(rows), abs=1e-5)


def test_training_learns(trial) -> None:
    tokens = np.tile(np.arange(10), 50)
    trial.tokens = {"eu": tokens, "en": tokens}
    reports = trial.with_plan(num_steps=40).run().reports
    assert reports[-1].losses["eu"] < 0.5 * reports[0].losses["eu"]


@pytest.mark.parametrize("tied", [True, False])
def test_a_step_is_the_same_however_it_is_cut(make_trial, tied: bool) -> None:
    """eps is large, so that what rounding does to a vanishing gradient is not blown up to a whole step."""
    trials = [
        make_trial(tied=tied, num_steps=2, micro_batch=n, optimizer_options={"eps": 1e-2}).run() for n in (1, 2, 3, 4)
    ]
    expected = weights_of(trials[-1].model)
    for trial in trials[:-1]:
        for name, weight in weights_of(trial.model).items():
            torch.testing.assert_close(weight, expected[name], atol=1e-6, rtol=0)


def test_a_step_is_plain_adamw_on_the_mean_loss(trial) -> None:
    one = trial.with_plan(num_steps=1, warmup_steps=1, clip=1e9, checkpoint_at=frozenset()).run()
    model = load_model(trial.base).train()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    tokens = torch.from_numpy(trial.loader().batch(0).tokens)
    logits = model(tokens[:, :-1]).logits[..., :NUM_IDS]
    cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    for name, weight in weights_of(model).items():
        moved = (weights_of(one.model)[name] - weight).abs()
        assert float(moved.mean()) < 1e-5, name


def test_gradients_are_clipped(make_trial) -> None:
    loose, tight = (
        make_trial(num_steps=1, warmup_steps=1, clip=c, optimizer_options={"eps": 1.0}).run() for c in (1e9, 1e-4)
    )
    start = weights_of(load_model(loose.base))
    moved = [
        sum(float((w - start[n]).abs().sum()) for n, w in weights_of(t.model).items() if "norm" in n)
        for t in (loose, tight)
    ]
    assert moved[1] < 0.01 * moved[0]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("train", ["embeddings", "new_embeddings"])
def test_the_frozen_body_stands_still_bit_for_bit(make_trial, tied: bool, train: str) -> None:
    trial = make_trial(tied=tied, train=train).run()
    start, now = weights_of(load_model(trial.base)), weights_of(trial.model)
    tables = {"model.embed_tokens.weight"} | (set() if tied else {"lm_head.weight"})
    assert {name for name in now if not torch.equal(start[name], now[name])} == tables
    assert trial.still == len(start) - len(tables) + (2 * len(tables) if train == "new_embeddings" else 0)


@pytest.mark.parametrize("tied", [True, False])
def test_o33_only_new_rows_move_and_nothing_decays_the_others(make_trial, tied: bool) -> None:
    trial = make_trial(tied=tied, train="new_embeddings", weight_decay=0.5).run()
    start, now = weights_of(load_model(trial.base)), weights_of(trial.model)
    for name in ["model.embed_tokens.weight", *([] if tied else ["lm_head.weight"])]:
        moved = (start[name] != now[name]).any(dim=1)
        assert not moved[:NUM_OLD].any()
        assert not moved[NUM_IDS:].any()
        assert moved[NUM_OLD:NUM_IDS].any()


@pytest.mark.parametrize("tied", [True, False])
def test_only_new_rows_move_where_they_lie_among_the_old_ones(make_trial, tied: bool) -> None:
    trial = make_trial(tied=tied, train="new_embeddings", weight_decay=0.5)
    trial.new_ids = tuple(range(3, NUM_IDS, 4))
    trial.run()
    start, now = weights_of(load_model(trial.base)), weights_of(trial.model)
    for name in ["model.embed_tokens.weight", *([] if tied else ["lm_head.weight"])]:
        moved = (start[name] != now[name]).any(dim=1).nonzero().flatten().tolist()
        assert len(moved) > 50
        assert set(moved) <= set(trial.new_ids)


@pytest.mark.parametrize("place", ["model.layers.0.mlp.up_proj.weight", "model.norm.weight"])
def test_the_proof_sees_a_body_that_was_touched(make_trial, place: str) -> None:
    def touch(model, report) -> None:
        if report.step == 3:
            model.get_parameter(place).data.view(-1)[0] += 1e-6

    with pytest.raises(FrozenMovedError, match=place):
        make_trial(train="embeddings").run(touch)


@pytest.mark.parametrize("row", [0, NUM_OLD - 1, NUM_IDS, 419])
def test_the_proof_sees_a_row_that_was_touched(make_trial, row: int) -> None:
    def touch(model, report) -> None:
        model.get_input_embeddings().weight.data[row, 0] += 1e-3

    with pytest.raises(FrozenMovedError, match="rows"):
        make_trial(train="new_embeddings").run(touch)


def test_o20_a_head_that_gets_no_gradient_stops_the_stage(make_trial) -> None:
    def deaf(_, head: Head) -> Head:
        return Head(head.weight.detach().clone(), head.bias, head.softcap, head.num_ids)

    with pytest.raises(TrainingError, match=r"no gradient reaches .*lm_head\.weight"):
        make_trial(tied=False, train="embeddings").run(head=deaf)


def test_o20_an_input_table_that_gets_no_gradient_stops_the_stage(make_trial, monkeypatch) -> None:
    from lingraft.training import stage

    whole = stage.hidden_states
    monkeypatch.setattr(stage, "hidden_states", lambda model, ids, **given: whole(model, ids, **given).detach())
    trial = make_trial(tied=False, train="embeddings")
    with pytest.raises(TrainingError, match=r"no gradient reaches .*embed_tokens\.weight"):
        trial.run()
    assert (trial.reports, trial.checkpoints.exists()) == ([], False)


def test_o20_new_rows_that_never_occur_stop_the_stage(make_trial) -> None:
    trial = make_trial(tied=False, train="new_embeddings")
    trial.tokens = {name: np.arange(500) % NUM_OLD for name in ("eu", "en")}
    with pytest.raises(TrainingError, match="no gradient reaches"):
        trial.run()


def test_o20_a_table_that_does_not_move_stops_the_stage(make_trial) -> None:
    """Gradients arrive, and every update is lost in rounding."""
    trial = make_trial(tied=True, peak_rate=1e-30)
    with pytest.raises(TrainingError, match=r"embed_tokens\.weight has not moved in 7 steps though gradients reach it"):
        trial.run()
    assert len(trial.reports) == 6


def test_o45_the_source_of_every_step_is_logged_as_the_schedule_says(trial) -> None:
    made = trial.loader()
    schedule = Schedule(lambda fraction: {"eu": 1.0} if fraction < 3 / 7 else {"en": 1.0}, (3 / 7,))
    mix = apportion(schedule, ["eu", "en"], 4 * 7, grain=4)
    loader = SequenceLoader(made._stores, mix, sequences=4, sequence_length=16, seed=0)
    trial.loader = lambda: loader
    reports = trial.run().reports
    assert [dict(r.counts) for r in reports] == [{"eu": 64}] * 3 + [{"en": 64}] * 4
    assert [dict(r.read) for r in reports] == [{"eu": 64}] * 3 + [{"en": 64}] * 4


def test_o51_with_pad_equal_to_eos_a_genuine_eos_keeps_its_loss(trial) -> None:
    """Every third token is id 0, which is EOS and may be the pad id: all 64 labels of a step are learnt from."""
    tokens = np.arange(500) % 50
    tokens[::3] = 0
    trial.tokens = {"eu": tokens, "en": tokens}
    first = trial.with_plan(num_steps=1, warmup_steps=1).run().reports[0]
    model, batch = load_model(trial.base), torch.from_numpy(trial.loader().batch(0).tokens)
    model.config.pad_token_id = model.config.eos_token_id = 0
    with torch.no_grad():
        logits = model(batch[:, :-1]).logits[..., :NUM_IDS]
    mean = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    assert (first.tokens, sum(first.counts.values())) == (64, 64)
    assert (3 * first.losses["eu"] + first.losses["en"]) / 4 == pytest.approx(mean.item(), abs=1e-5)


def test_a_loss_that_is_not_finite_stops_before_the_step_and_nothing_is_saved(trial) -> None:
    def poison(model, report) -> None:
        if report.step == 3:
            model.model.norm.weight.data[0] = torch.nan

    trial = trial.with_plan(alarms=AlarmRules(bad_steps=1))
    with pytest.raises(
        TrainingError, match=r"step 4: the loss or the gradient is not finite.*the last checkpoint is sound"
    ):
        trial.run(poison)
    assert [r.step for r in trial.reports] == [1, 2, 3]
    found, passed_over = latest_checkpoint(trial.checkpoints, trial.fingerprints)
    assert (found.step, passed_over) == (2, [])
    assert all(bool(t.isfinite().all()) for t in found.tensors("model").values())


def test_a_stop_saves_and_says_where(trial) -> None:
    with pytest.raises(InterruptedRunError, match="stage 'trial' after step 3 of 7; it is saved"):
        trial.run(should_stop=lambda: len(trial.reports) == 3)
    assert latest_checkpoint(trial.checkpoints, trial.fingerprints)[0].step == 3


def test_a_stop_at_the_last_step_is_the_end(trial) -> None:
    trial.run(should_stop=lambda: len(trial.reports) == STEPS)
    assert len(trial.reports) == STEPS


def test_measuring_happens_where_it_is_due_in_evaluation_mode(trial) -> None:
    seen: list[tuple[int, bool]] = []
    trial.with_plan(measure_at=frozenset({1, 3, 7})).run(
        measure=lambda model, step: seen.append((step, model.training))
    )
    assert seen == [(1, False), (3, False), (7, False)]


def test_measuring_does_not_change_what_is_learnt(make_trial) -> None:
    def measure(model, step: int) -> None:
        torch.manual_seed(step)
        model(torch.randint(NUM_IDS, (1, 8)))

    plain = make_trial().run()
    assert make_trial(measure_at=frozenset({1, 2, 5})).run(measure=measure).digest() == plain.digest()


def test_a_first_loss_worse_than_guessing_is_remarked_on(trial) -> None:
    def loud(_, head: Head) -> Head:
        head.weight.data.mul_(3)
        return head

    trial.with_plan(num_steps=1, warmup_steps=1).run(head=loud)
    assert "worse than guessing (6.02)" in trial.notes[0]
    assert math.log(NUM_IDS) == pytest.approx(6.016, abs=1e-3)


def test_o32_a_first_loss_far_worse_than_guessing_stops_with_a_diagnosis(make_trial) -> None:
    def loud(_, head: Head) -> Head:
        head.weight.data.mul_(100)
        return head

    trial = make_trial(num_steps=3, warmup_steps=1)
    with pytest.raises(TrainingError, match=r"the first loss is .* far worse than guessing among the 410 .* look at"):
        trial.run(head=loud)
    assert [r.step for r in trial.reports] == [1]
    make_trial(num_steps=3, warmup_steps=1, refuse_bad_start=False).run(head=loud)


class Spoiling(Companion):
    """Puts NaN into the gradient of some steps, as a faulty kernel or a poisoned text would."""

    group = "spoiling"

    def __init__(self, start, steps: set[int], value: float = math.nan) -> None:
        self.parameters, self.steps, self.value = start.parameters, steps, value
        self.updates: list[int] = []

    def before_update(self, step: int) -> None:
        if step in self.steps:
            for parameter in self.parameters.values():
                parameter.grad.mul_(self.value)

    def after_update(self, step: int) -> None:
        self.updates.append(step)


def spoiled(make_trial, steps: set[int], value: float = math.nan, **changes):
    made: list[Spoiling] = []

    def companion(start) -> Spoiling:
        made.append(Spoiling(start, steps, value))
        return made[-1]

    return make_trial(companions=(companion,), **changes), made


def test_a_step_that_is_not_finite_is_left_out_with_the_ids_of_its_text(make_trial) -> None:
    trial, made = spoiled(make_trial, {3, 5}, alarms=AlarmRules(bad_steps=2))
    before: dict[int, str] = {}
    trial.run(lambda model, report: before.update({report.step: trial.digest()}))
    assert [r.step for r in trial.reports] == [1, 2, 3, 4, 5, 6, 7]
    assert (before[3], before[5]) == (before[2], before[4])
    assert len(set(before.values())) == 5
    assert made[0].updates == [1, 2, 4, 6, 7]
    assert [r.alarm.kind for r in trial.reports if r.alarm] == ["non_finite"] * 2
    listed = trial.loader().batch(2).describe()
    assert listed.count("eu ") == 3
    notes = [note for note in trial.notes if "not finite" in note]
    assert "step 3: the loss or the gradient is not finite (loss " in notes[0]
    assert f"sequences {listed}; the update is left out" in notes[0]


def test_so_many_bad_steps_in_a_row_stop_the_stage(make_trial) -> None:
    trial, _ = spoiled(make_trial, {2, 4, 5, 6}, alarms=AlarmRules(bad_steps=3))
    with pytest.raises(TrainingError, match=r"step 6: .* for 3 steps in a row; sequences (eu|en) .*not made"):
        trial.run()
    found, _ = latest_checkpoint(trial.checkpoints, trial.fingerprints)
    assert found.step == 4
    assert all(bool(t.isfinite().all()) for t in found.tensors("model").values())


@pytest.mark.parametrize(("action", "updates"), [("log", [*range(1, 13)]), ("skip", [*range(1, 11), 12])])
def test_a_spike_is_noted_or_left_out(make_trial, action: str, updates: list[int]) -> None:
    settings = {"num_steps": 12, "alarms": AlarmRules(spikes=action, window=8), "checkpoint_at": frozenset()}
    trial, made = spoiled(make_trial, {11}, 100.0, **settings)
    trial.run()
    assert made[0].updates == updates
    assert [(r.step, r.alarm.kind) for r in trial.reports if r.alarm] == [(11, "spike")]
    assert "the gradient's norm is" in trial.notes[-1]


def test_a_spike_may_stop_the_stage(make_trial) -> None:
    trial, _ = spoiled(make_trial, {11}, 100.0, num_steps=12, alarms=AlarmRules(spikes="stop", window=8))
    with pytest.raises(TrainingError, match=r"step 11: the gradient's norm is .*σ above the mean"):
        trial.run()


def test_tables_may_learn_at_a_rate_of_their_own(make_trial) -> None:
    """SGD moves in proportion to its rate: body as before, tables by a tenth."""
    settings = {"num_steps": 1, "warmup_steps": 1, "clip": 1e9, "weight_decay": 0.0, "optimizer": "sgd"}
    same, tenth = (make_trial(tied=False, table_factor=factor, **settings).run() for factor in (1.0, 0.1))
    start = weights_of(load_model(same.base))
    for name, weight in weights_of(tenth.model).items():
        share = 0.1 if name in ("model.embed_tokens.weight", "lm_head.weight") else 1.0
        torch.testing.assert_close(weight - start[name], share * (weights_of(same.model)[name] - start[name]))


@pytest.mark.parametrize(
    ("train", "moving", "only_new"),
    [
        (["new_input_embeddings"], {"model.embed_tokens.weight"}, {"model.embed_tokens.weight"}),
        (["new_output_embeddings"], {"lm_head.weight"}, {"lm_head.weight"}),
        (
            ["new_input_embeddings", "output_embeddings"],
            {"model.embed_tokens.weight", "lm_head.weight"},
            {"model.embed_tokens.weight"},
        ),
    ],
)
def test_o34_each_side_of_an_untied_model_freezes_its_own_rows(make_trial, train, moving, only_new) -> None:
    trial = make_trial(tied=False, train=train, weight_decay=0.5).run()
    start, now = weights_of(load_model(trial.base)), weights_of(trial.model)
    assert {name for name in now if not torch.equal(start[name], now[name])} == moving
    for name in moving:
        moved = (start[name] != now[name]).any(dim=1)
        assert bool(moved[NUM_OLD:NUM_IDS].any())
        assert bool(moved[:NUM_OLD].any()) == (name not in only_new)


def test_the_z_loss_shrinks_the_normaliser(make_trial) -> None:
    """With a weight of 1 it outweighs the rest, and log Z falls."""
    plain, shrunk = (make_trial(num_steps=30, z_loss=weight).run() for weight in (0.0, 1.0))
    batch = torch.from_numpy(plain.loader().batch(0).tokens[:, :-1])
    with torch.no_grad():
        sizes = [t.model.eval()(batch).logits[..., :NUM_IDS].logsumexp(-1).abs().mean() for t in (plain, shrunk)]
    assert sizes[1] < 0.8 * sizes[0]


def test_a_stop_while_measuring_is_saved_and_the_measurement_made_up_for(make_trial) -> None:
    """A measurement that was due where a stage was saved is not forgotten."""
    seen: list[int] = []

    def stopped(model, step: int) -> None:
        raise InterruptedRunError("stopped")

    trial = make_trial(measure_at=frozenset({3, 7}))
    with pytest.raises(
        InterruptedRunError, match=r"stage 'trial' after step 3 of 7, before it was measured; it is sav"
    ):
        trial.run(measure=stopped)
    trial.run(measure=lambda model, step: seen.append(step))
    assert seen == [3, 7]
    assert [r.step for r in trial.reports] == [1, 2, 3, 4, 5, 6, 7]
    assert trial.digest() == make_trial().run().digest()


def test_a_stop_in_the_last_measurement_is_made_up_for_too(make_trial) -> None:
    seen: list[int] = []

    def stopped(model, step: int) -> None:
        raise InterruptedRunError("stopped")

    trial = make_trial(measure_at=frozenset({7}))
    with pytest.raises(InterruptedRunError, match="after step 7 of 7, before it was measured"):
        trial.run(measure=stopped)
    trial.run(measure=lambda model, step: seen.append(step))
    assert (seen, len(trial.reports)) == ([7], 7)


def test_a_stop_that_comes_while_saving_is_heard(make_trial) -> None:
    trial, asked = make_trial(checkpoint_at=frozenset({2})), []

    def should_stop() -> bool:
        asked.append(len(trial.reports))
        return asked == [1, 2, 2]

    with pytest.raises(InterruptedRunError, match="after step 2 of 7; it is saved"):
        trial.run(should_stop=should_stop)


def test_bf16_trains_and_keeps_weights_in_fp32(trial) -> None:
    trained = trial.with_plan(dtype=torch.bfloat16).run()
    assert {p.dtype for p in trained.model.parameters()} == {torch.float32}
    plain = weights_of(load_model(trial.base))
    assert all(not torch.equal(plain[n], w) for n, w in weights_of(trained.model).items())


def test_o51_labels_are_chosen_by_document_and_an_end_token_is_learned_like_any_other(make_trial) -> None:
    """End tokens (id 0) stand in the middle of rows: each is a label that counts; what follows one is none."""
    tokens = np.random.default_rng(0).integers(1, NUM_IDS, size=500)
    lengths = (7,) * 71
    tokens[6::7] = 0
    trial = make_trial(num_steps=1, warmup_steps=1)
    trial.tokens, trial.lengths = {"eu": tokens, "en": tokens}, lengths
    batch = trial.loader().batch(0)
    assert (batch.counts == (batch.tokens[:, :-1] != 0)).all()
    assert batch.counts[batch.tokens[:, 1:] == 0].all()
    report = trial.run().reports[0]
    assert sum(report.counts.values()) == batch.counts.sum() < report.tokens
    model = load_model(trial.base)
    with torch.no_grad():
        logits = model(torch.from_numpy(batch.tokens[:, :-1])).logits[..., :NUM_IDS]
    losses = cross_entropy(logits.transpose(1, 2), torch.from_numpy(batch.tokens[:, 1:]), reduction="none").numpy()
    for name in ("eu", "en"):
        rows = np.array([own == name for own in batch.corpora])
        assert report.losses[name] == pytest.approx(losses[rows][batch.counts[rows]].mean(), abs=1e-5)


@pytest.mark.parametrize("isolate", [False, True])
def test_a_step_over_documents_is_the_same_however_it_is_cut(make_trial, isolate: bool) -> None:
    """Rows have different numbers of labels that count, and every label weighs the same."""
    trials = [
        make_trial(num_steps=2, micro_batch=n, optimizer_options={"eps": 1e-2}, isolate=isolate) for n in (1, 3, 4)
    ]
    for trial in trials:
        trial.lengths = (3, 30, 5, 2, 2, 2, 2, 2, 90, 1)
        trial.run()
    expected = weights_of(trials[-1].model)
    for trial in trials[:-1]:
        for name, weight in weights_of(trial.model).items():
            torch.testing.assert_close(weight, expected[name], atol=1e-6, rtol=0)


def test_isolated_documents_learn_what_they_would_learn_alone(make_trial) -> None:
    """The loss of a row of two documents is that of the two by themselves."""
    trial = make_trial(num_steps=1, warmup_steps=1, isolate=True)
    trial.lengths = tuple([5, 11] * 40)
    report, batch = trial.run().reports[0], trial.loader().batch(0)
    model = load_model(trial.base)
    total = 0.0
    for tokens, documents in zip(batch.tokens, batch.documents, strict=True):
        for number in np.unique(documents):
            own = torch.from_numpy(tokens[documents == number])[None]
            if own.shape[1] > 1:
                with torch.no_grad():
                    logits = model(own[:, :-1]).logits[0, :, :NUM_IDS]
                total += cross_entropy(logits, own[0, 1:], reduction="sum").item()
    told = sum(report.losses[name] * report.counts[name] for name in report.losses)
    assert told == pytest.approx(total, rel=1e-5)
