"""The demo: a real model learns a real language, and what it gained and lost is shown.

    python scripts/demo.py            the whole demo, about ten minutes on two CPU cores
    python scripts/demo.py --short    the same path with a few steps, for continuous integration

It runs ``recipes/demo.yaml``, then a shortened copy of it twice, once killed with SIGKILL in the middle of a stage and
started again, and compares the weights. It ends with exit status 1 if something that it promises does not hold.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from lingraft.measurement import Measurement, read_measurements
from lingraft.run import Run

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "recipes" / "demo.yaml"
SHORT = (
    "stages.0.tokens=2048",
    "stages.0.batch.tokens=1024",
    "stages.0.batch.sequence_length=256",
    "stages.1.tokens=6144",
    "stages.1.batch.tokens=1024",
    "stages.1.batch.sequence_length=256",
    "stages.1.checkpoint_every=34%",
    "measure.at=[100%]",
    "measure.validation_bytes=4000",
    "measure.drift.tokens=512",
    "measure.generation.prompts=2",
    "measure.probes=[{name: random_copy, num_items: 4}]",
    "measure.sample_tokens=8",
)
LAST_STAGE = "stage-2-continued-pretraining"


def main() -> int:
    """Run the demo; return 0 if everything that it promises holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a few steps only")
    parser.add_argument("--to", type=Path, default=ROOT / "runs", help="where the run folders go")
    chosen = parser.parse_args()
    began = time.perf_counter()
    main_run = chosen.to / ("demo-short" if chosen.short else "demo-basque")
    _lingraft(main_run, SHORT if chosen.short else ())
    trained = time.perf_counter() - began
    base = f"base_model={main_run / 'base'}"
    whole = chosen.to / "demo-uninterrupted"
    killed = chosen.to / "demo-killed"
    if not chosen.short or _weights(main_run) is None:
        _lingraft(whole, (*SHORT, base))
    else:
        whole = main_run
    _kill_in_the_middle(killed, (*SHORT, base))
    _lingraft(killed, (*SHORT, base))
    promises = list(_promises(main_run, whole, killed, short=chosen.short))
    _show(main_run, promises, trained, time.perf_counter() - began)
    return 0 if all(held for _, _, held in promises) else 1


def _command(folder: Path, overrides: tuple[str, ...]) -> list[str]:
    command = [sys.executable, "-m", "lingraft", "run", str(RECIPE), "--to", str(folder)]
    return command + [word for override in overrides for word in ("--set", override)]


def _lingraft(folder: Path, overrides: tuple[str, ...]) -> None:
    print(
        f"\n$ lingraft run {RECIPE.relative_to(ROOT)} --to {folder.name}  ({len(overrides)} values set over it)",
        flush=True,
    )
    subprocess.run(_command(folder, overrides), check=True)


def _kill_in_the_middle(folder: Path, overrides: tuple[str, ...]) -> None:
    """Start a run and kill it, without a warning, one step after its second checkpoint in the last stage."""
    if _weights(folder) is not None:
        return
    print(f"\n$ lingraft run … --to {folder.name}  (and kill -9 in the middle)", flush=True)
    process = subprocess.Popen(_command(folder, overrides), stdout=subprocess.DEVNULL)
    checkpoints = folder / "stages" / "2-continued-pretraining" / "checkpoints"
    while process.poll() is None and len(list(checkpoints.glob("step-*"))) < 2:
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = sorted(path.name for path in checkpoints.glob("step-*"))
    print(f"killed; {folder.name} is left with {', '.join(left) or 'no checkpoint'}", flush=True)


def _weights(folder: Path) -> str | None:
    marker = Run(folder).finished(LAST_STAGE)
    return marker["record"]["weights_sha256"] if marker else None


def _value(rows: list[Measurement], stage: str, name: str, language: str | None = None) -> float:
    return next(r.value for r in reversed(rows) if (r.stage, r.name, r.language) == (stage, name, language))


def _promises(folder: Path, whole: Path, killed: Path, *, short: bool) -> Iterator[tuple[str, str, bool]]:
    """Yield what the demo promises: the claim, the figures, whether it holds."""
    rows = list(read_measurements(folder / "measurements.jsonl"))
    final = "continued-pretraining"
    before, after = (_value(rows, stage, "fertility", "eu") for stage in ("base", "expanded"))
    yield "Basque fertility falls by a third", f"{before:.2f} → {after:.2f} tokens a word", after <= before * 2 / 3
    before, after = (_value(rows, stage, "bits_per_byte", "eu") for stage in ("base", final))
    yield "Basque bits per byte fall", f"{before:.3f} → {after:.3f}", after < before - (0.0 if short else 0.3)
    before, after = (_value(rows, stage, "bits_per_byte", "en") for stage in ("base", final))
    yield (
        "English bits per byte rise by less than 3 %",
        f"{before:.3f} → {after:.3f} ({after / before - 1:+.1%})",
        after < before * 1.03,
    )
    gates = {gate["name"]: gate for gate in json.loads((folder / "vocabulary" / "gates.json").read_text())}
    protected = gates["T2 protected text unchanged"]
    yield "protected English keeps its tokens", protected["found"], protected["found"].startswith("0 of ")
    drift = _value(rows, "expanded", "segmentation_drift", "en")
    yield "held-out English keeps its tokens", gates["T2 source drift"]["found"], drift < 0.01
    before, after = (_value(rows, stage, "probe/random_copy/accuracy") for stage in ("base", final))
    yield "random copying, before and after", f"{before:.1%} → {after:.1%}", True
    still = (Run(folder).finished("stage-1-embeddings-only") or {"record": {}})["record"].get("frozen_pieces", 0)
    yield "the first stage moved nothing but new rows", f"{still} frozen pieces, the same bits as before", still > 0
    one, other = _weights(whole), _weights(killed)
    yield (
        "killed and resumed: the same weights",
        f"{str(one)[:16]}… and {str(other)[:16]}…",
        one is not None and one == other,
    )


def _show(folder: Path, promises: list[tuple[str, str, bool]], trained: float, total: float) -> None:
    print("\nWhat the demo shows")
    for claim, figures, held in promises:
        print(f"  {'yes' if held else 'NO '}  {claim:45} {figures}")
    for line in (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()[:2]:
        sample = json.loads(line)
        print(
            f"\n  {sample['prompt']} …\n    before: {sample['base'].strip()}\n    after:  {sample['adapted'].strip()}"
        )
    minutes = f"{trained / 60:.1f} minutes; with the proof of resuming {total / 60:.1f}"
    print(f"\nThe run took {minutes}.\nmodel:  {folder / 'model'}\nreport: {folder / 'report.html'}")


if __name__ == "__main__":
    sys.exit(main())
