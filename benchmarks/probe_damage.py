"""Do the probes fall when a model is damaged? Each is asked of a model with more and more noise in its matrices.

    python benchmarks/probe_damage.py --model FOLDER [--items 24] [--noise 0 0.02 0.05 0.1 0.2]

Every matrix W gets isotropic Gaussian noise N of relative length ε: ‖N‖ = ε · ‖W‖. The noise of one matrix points the
same way for every ε. A probe is monotone here if no step of more damage raises its score by more than the standard
error of the two. Tables come out as Markdown, with what each probe costs.
"""

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.measure.probes import ProbeContext, ProbeResult, probes
from lingraft.measure.scoring import Scorer
from lingraft.pipeline.inspecting import OpenedModel, open_model

LADDER = (
    "associative_recall",
    "arbitrary_labels",
    "flipped_labels",
    "position",
    "copy_reverse",
    "constant_offset",
    "sort",
)
SHOWN = {
    "random_copy": ("accuracy", "nll"),
    "copain": ("exact_match", "validity", "choice_accuracy", "gold_log_probability"),
    "copy_reverse": tuple(
        f"{part}/{s}" for part in ("copy", "reverse") for s in ("auc", "icl_gain", "k8/token_accuracy")
    ),
}
RISES_WITH_DAMAGE = {"nll"}


class CountingScorer(Scorer):
    """Counts the tokens that go through the model."""

    tokens = 0

    def _tree_states(self, trees: Any) -> Any:
        self.tokens += sum(len(tree.tokens) for tree in trees)
        return super()._tree_states(trees)

    def _forward(self, pieces: Any) -> Any:
        self.tokens += sum(len(piece[-1]) for piece in pieces)
        return super()._forward(pieces)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model, as the command line takes it")
    parser.add_argument("--items", type=int, default=24, help="of each probe of the ladder, and of random copy")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.02, 0.05, 0.1, 0.2])
    parser.add_argument("--cache", type=Path, help="where a GGUF file is converted to")
    chosen = parser.parse_args()
    opened = open_model(chosen.model, cache=chosen.cache)
    clean = {name: p.detach().clone() for name, p in opened.model.named_parameters() if p.ndim == 2}
    found: dict[str, list[Any]] = {}
    for noise in chosen.noise:
        damage(opened.model, clean, noise)
        for name, probe in bound(chosen.items).items():
            began, scorer = time.perf_counter(), scorer_of(opened)
            result = probe(ProbeContext(scorer, opened.tokenizer, frozenset(opened.tokenizer.vocabulary.values())))
            seconds = time.perf_counter() - began
            found.setdefault(name, []).append((result, scorer.tokens, seconds))
            print(f"# noise {noise}: {name} {seconds:.1f} s, {scorer.tokens:,} tokens", flush=True)
    table(found, chosen.noise)
    costs(found)


def scorer_of(opened: OpenedModel) -> CountingScorer:
    """A scorer that counts."""
    return CountingScorer(
        opened.model, num_ids=opened.tokenizer.num_ids, condition_id=opened.condition_id, batch_size=16
    )


def bound(items: int) -> dict[str, Callable[[ProbeContext], ProbeResult]]:
    """Every probe with few items."""
    chosen: dict[str, Callable[[ProbeContext], ProbeResult]] = {
        "random_copy": partial(probes.get("random_copy", "here").function, num_items=items),
        "copain": partial(probes.get("copain", "here").function, num_items=items // 2, shots=3, templates="arrow"),
    }
    options = {"num_items": items, "shots": (1, 3, 8)}
    return chosen | {name: partial(probes.get(name, "here").function, **options) for name in LADDER}


def damage(model: nn.Module, clean: dict[str, torch.Tensor], noise: float) -> None:
    """Put noise of a relative length into every matrix; the same direction for every length."""
    parameters = dict(model.named_parameters())
    for number, (name, weight) in enumerate(clean.items()):
        direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
        with torch.no_grad():
            parameters[name].copy_(weight + direction * (noise * weight.norm() / direction.norm()))


def table(found: dict[str, list[Any]], noises: list[float]) -> None:
    """Print each score at each noise, and whether it falls."""
    print(f"\n| probe | score | {' | '.join(f'ε {noise:g}' for noise in noises)} | chance | monotone |")
    print(f"| --- | --- |{' ---: |' * len(noises)} ---: | --- |")
    for name, runs in found.items():
        for score in SHOWN.get(name, ("auc", "icl_gain", "k8/exact_match", "k8/choice_accuracy", "k8/validity")):
            series = [next(s for s in result.scores if s.name == score) for result, _, _ in runs]
            place = score.rpartition("/")[0]
            chances = [
                s.value for s in runs[0][0].scores if s.name == (f"{place}/chance" if place else "element_picker")
            ]
            is_compared = "choice_accuracy" in score or score == "exact_match"
            chance = f"{chances[0]:.3f}" if chances and is_compared else ""
            shown = " | ".join(f"{one.value:.3f}" for one in series)
            print(f"| `{name}` | `{score}` | {shown} | {chance} | {verdict(score, series)} |")


def verdict(score: str, series: list[Any]) -> str:
    """Yes, or the first step at which it rises by more than the standard error of the difference."""
    sign = -1 if score in RISES_WITH_DAMAGE else 1
    for number, (one, other) in enumerate(pairwise(series), start=1):
        rise = sign * (other.value - one.value)
        # A 95 % interval is 3.92 standard errors wide.
        errors = [(s.high - s.low) / 3.92 if s.high is not None else 0.0 for s in (one, other)]
        if rise > math.hypot(*errors):
            return f"no: rises by {rise:.3f} at step {number}"
    whole = sign * (series[0].value - series[-1].value)
    least = math.hypot(*[(s.high - s.low) / 3.92 if s.high is not None else 0.0 for s in (series[0], series[-1])])
    return "yes" if whole > 2 * least else "does not move beyond two standard errors"


def costs(found: dict[str, list[Any]]) -> None:
    """Print what each probe costs, the mean over noises."""
    print("\n| probe | items | tokens | seconds |\n| --- | ---: | ---: | ---: |")
    for name, runs in found.items():
        seconds = sum(seconds for _, _, seconds in runs) / len(runs)
        print(f"| `{name}` | {len(runs[0][0].items)} | {runs[0][1]:,} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
