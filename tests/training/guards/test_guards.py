"""What all guards share: the registry, limits, frozen rows, and the same bits when a stage goes on."""

import pytest
import torch

from lingraft.errors import RecipeError
from lingraft.model.base import load_model
from lingraft.training.guards import bind_guard, guards

OPTIONS = {"l2_start": {"strength": 0.5}, "ewc": {"strength": 1e4, "tokens": 16}, "source_shielded": {"tokens": 16}}


def made(name, source, **options):
    make = bind_guard(name, OPTIONS[name] | options, "stages.0.guards.0")
    return lambda start: make(start, source)


def test_every_guard_is_tried_here() -> None:
    assert {entry.name for entry in guards} == OPTIONS.keys()
    assert all(entry.marks["copies"] in (1, 2) for entry in guards)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("l2_start", {}, "where: 'l2_start' needs strength"),
        ("l2_start", {"strength": -1.0}, r"where\.strength: must be at least 0, not -1\.0"),
        ("ewc", {"strength": 1.0, "tokens": 0}, r"where\.tokens: must be at least 1, not 0"),
        ("ewc", {"strength": 1.0, "token": 1}, r"where\.token: 'ewc' has no such option, did you mean 'tokens'"),
        ("source_shielded", {"share": 1.5}, r"where\.share: must be between 0 and 1, not 1\.5"),
        ("ssu", {}, r"where: unknown guard 'ssu'"),
    ],
)
def test_what_cannot_be_used_is_refused(name, options, message) -> None:
    with pytest.raises(RecipeError, match=message):
        bind_guard(name, options, "where")


@pytest.mark.parametrize("name", ["l2_start", "ewc"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_guard_never_moves_frozen_rows(make_trial, source, name: str, tied: bool) -> None:
    trial = make_trial(tied=tied, train="new_embeddings", companions=(made(name, source),)).run()
    start, now = dict(load_model(trial.base).named_parameters()), dict(trial.model.named_parameters())
    for table in ("model.embed_tokens.weight", *(() if tied else ("lm_head.weight",))):
        moved = (start[table] != now[table]).any(dim=1)
        assert not moved[:380].any()
        assert not moved[410:].any()
        assert moved[380:410].any()


@pytest.mark.parametrize("name", OPTIONS)
def test_a_killed_stage_ends_with_the_same_bits(make_trial, source, name: str) -> None:
    class KilledError(Exception):
        pass

    def kill(_, report):
        if report.step == 5:
            raise KilledError

    settings = {"companions": (made(name, source),)}
    whole, again = make_trial(**settings).run(), make_trial(**settings)
    with pytest.raises(KilledError):
        again.run(kill)
    assert again.run().last_save() == whole.last_save()
    assert again.digest() != make_trial().run().digest()


@pytest.mark.parametrize("name", ["l2_start", "ewc"])
def test_a_guard_of_no_strength_changes_nothing(make_trial, source, name: str) -> None:
    assert make_trial(companions=(made(name, source, strength=0.0),)).run().digest() == make_trial().run().digest()


@pytest.mark.parametrize(("name", "strength"), [("l2_start", 10.0), ("ewc", 300.0)])
def test_the_stronger_the_guard_the_nearer_the_start(make_trial, source, name: str, strength: float) -> None:
    """Near in what the guard weighs: every weight alike, or by its Fisher information. eps makes AdamW plain descent."""
    seen = []

    def keeping(value):
        def make(start):
            seen.append(made(name, source, strength=value)(start))
            return seen[-1]

        return make

    settings = {"weight_decay": 0.0, "optimizer_options": {"eps": 1.0}, "clip": 1e9, "num_steps": 30}
    distances = []
    for value in (0.0, strength / 10, strength):
        trial = make_trial(**settings, companions=(keeping(value),)).run()
        weights = getattr(seen[-1], "_fisher", None)
        start = dict(load_model(trial.base).named_parameters())
        moved = {n: (p.detach() - start[n].detach()).square() for n, p in trial.model.named_parameters()}
        distances.append(sum(float((m * weights[n] if weights else m).sum()) for n, m in moved.items()))
    assert distances[2] < 0.9 * distances[1] < 0.9 * distances[0]


def test_the_guard_is_in_the_gradient_that_is_clipped_and_reported(make_trial, source) -> None:
    free = make_trial().run()
    held = make_trial(companions=(made("l2_start", source, strength=1e3),)).run()
    assert held.reports[0].gradient_norm == free.reports[0].gradient_norm  # at the start there is no pull
    assert held.reports[2].gradient_norm > 10 * free.reports[2].gradient_norm


def test_ewc_and_shielding_leave_no_gradient_and_no_hook_behind(make_trial, source) -> None:
    def look(start):
        for name in ("ewc", "source_shielded"):
            made(name, source)(start)
        assert all(p.grad is None for p in start.model.parameters())
        assert not any(module._forward_pre_hooks for module in start.model.modules())
        return made("l2_start", source)(start)

    make_trial(num_steps=1, warmup_steps=1, companions=(look,)).run()
    assert torch.is_grad_enabled()
