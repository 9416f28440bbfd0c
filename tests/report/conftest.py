"""Run folders to report on: a realistic one, one that was stopped half-way, and one full of hostile text."""

import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lingraft.item_records import ItemRecord, write_items
from lingraft.measurement import Measurement, write_measurements
from lingraft.recipe import Recipe
from lingraft.recipe_file import dump_recipe

SCRIPT = "<script>window.hostile = 1; alert(1)</script>"
ATTRIBUTE = '" onmouseover="window.hostile = 2" x="'
IMAGE = "<img src=https://evil.invalid/x.png onerror=window.hostile=3>"
CLOSING = "</script><script>window.hostile = 4</script>"
BIDI = "safe\u202egnp.exe\u2066\u061c\u200f"
ANSI = "\x1b[31mred\x1b[0m\x07\x9b\x00"
HOSTILE = f"{SCRIPT}{ATTRIBUTE}{IMAGE}{CLOSING}{BIDI}{ANSI}\u2028 $x {{y}} %{{z}} | `code` [a](javascript:1)"

HOSTILE_NAMES = (
    "probe/{0}/exact_match", "probe/{0}/{0}/exact_match", "probe/{0}/k1/exact_match", "probe/{0}/k3/exact_match",
    "probe/{0}/shuffled/k3/exact_match", "probe/{0}/prompts_tokenised_differently", "probe/{0}/chance",
    "probe/copain/baseline/{0}", "task/{0}/acc", "label_perplexity/{0}/gold", "generation/{0}/target_share", "alarm/{0}",
    "drift/{0}", "drift/cka/source/layer/{0}", "drift/cka/source/layer/3", "shift/{0}/relative_l2",
    "shift/layer/1/{0}/relative_l2", "averaged/{0}", "{0}",
)  # fmt: skip
MOMENTS = (("base", 0), ("expanded", 0), ("continued-pretraining", 3), ("continued-pretraining", 5), (HOSTILE, 7))

KINDS = ("embeddings_old", "embeddings_new", "attention", "mlp", "norm")
TASKS = ("max", "min", "median", "odd_one", "even_one", "first_character", "last_character")


def recipe_of(name: str, target: str = "eu", share: float = 0.8) -> Recipe:
    """Return a two-stage recipe of 20 and 80 steps of 1,024 tokens."""
    batch = {"tokens": 1024, "sequence_length": 256, "micro_batch": 2}
    first = {
        "name": "embeddings-only", "train": "embeddings", "tokens": 20_480, "mix": {target: 0.9, "en": 0.1},
        "lr": {"schedule": "cosine", "peak": 1e-3}, "batch": batch,
    }  # fmt: skip
    second = {
        "name": "continued-pretraining", "tokens": 81_920, "mix": {target: share, "en": 1 - share},
        "lr": {"schedule": "cosine", "peak": 1e-4, "warmup": 0.1}, "batch": batch, "ema": {"kind": "live"},
    }  # fmt: skip
    return Recipe.model_validate({
        "name": name, "base_model": "HuggingFaceTB/SmolLM2-135M",
        "languages": {"source": "en", "target": target},
        "corpora": {code: {"path": f"/somebody/secret/{code}.jsonl.zst"} for code in (target, "en")},
        "stages": [first, second],
    })  # fmt: skip


def _bits(stage: str, tokens: int, language: str, value: float, half: float = 0.03) -> Measurement:
    return Measurement(stage, tokens, "bits_per_byte", value, language, value - half, value + half, 180)


def _probes(stage: str, tokens: int, copy: float, copain: float) -> Iterator[Measurement]:
    yield Measurement(stage, tokens, "probe/random_copy/accuracy", copy, None, copy - 0.04, copy + 0.04, 1024)
    yield Measurement(stage, tokens, "probe/random_copy/nll_drop", 8 * copy, None, None, None, 1024)
    yield Measurement(stage, tokens, "probe/copain/exact_match", copain, None, copain - 0.05, copain + 0.05, 350)
    yield Measurement(stage, tokens, "probe/copain/validity", 0.97, None, None, None, 350)
    yield Measurement(stage, tokens, "probe/copain/element_picker", 0.31, None, None, None, 350)
    for index, task in enumerate(TASKS):
        value = copain + 0.05 * math.sin(index)
        yield Measurement(stage, tokens, f"probe/copain/{task}/exact_match", value, None, value - 0.1, value + 0.1, 50)


def _before(target: str) -> Iterator[Measurement]:
    yield _bits("base", 0, target, 1.90)
    yield _bits("base", 0, "en", 0.950, 0.02)
    yield from _probes("base", 0, 0.63, 0.41)
    for language, base, expanded in ((target, 2.75, 1.68), ("en", 1.31, 1.31)):
        for stage, value in (("base", base), ("expanded", expanded)):
            yield Measurement(stage, 0, "fertility", value, language, count=24_512)
            yield Measurement(stage, 0, "tokens_per_byte", value / 6, language, count=200_000)
    yield Measurement("expanded", 0, "segmentation_drift", 0.002, "en", count=1000)
    yield Measurement("expanded", 0, "new_token_mass", 1.4e-5, "en")
    yield Measurement("expanded", 0, "norm/input/new", 2.113)
    yield Measurement("expanded", 0, "norm/input/old", 2.891)
    yield _bits("expanded", 0, target, 2.31)
    yield _bits("expanded", 0, "en", 0.951, 0.02)


def _training(target: str, steps: int, source_rise: float) -> Iterator[Measurement]:
    for step in range(1, steps + 1):
        stage, tokens = ("embeddings-only" if step <= 20 else "continued-pretraining"), step * 1024
        wave = 0.12 * math.sin(step * 1.7)
        yield Measurement(stage, tokens, "loss", 3.1 + 2.2 * math.exp(-step / 25) + wave, target)
        yield Measurement(stage, tokens, "loss", 3.3 + 0.1 * math.exp(-step / 10) - wave / 2, "en")
        peak = 1e-3 if step <= 20 else 1e-4
        yield Measurement(stage, tokens, "learning_rate", peak * (0.03 + abs(math.sin(step / 20 * 3.1))))
        yield Measurement(stage, tokens, "gradient_norm", 1 + 0.4 * abs(wave))
        yield Measurement(stage, tokens, "tokens_per_second", 281.0)
        yield Measurement(stage, tokens, "share", 0.9 if step <= 20 else 0.8, target)
        yield Measurement(stage, tokens, "share", 0.1 if step <= 20 else 0.2, "en")
        if step in (1, 2, 4, 8, 20, 21, 24, 30, 40, 60, 100):
            done = step / 100
            yield _bits(stage, tokens, target, 1.42 + 0.85 * math.exp(-step / 18))
            yield _bits(stage, tokens, "en", 0.951 * (1 + source_rise * done**0.5), 0.008)
            yield from _probes(stage, tokens, 0.63 - 0.05 * done, 0.41 - 0.02 * done)
            for index, kind in enumerate(KINDS):
                yield Measurement(stage, tokens, f"shift/{kind}/relative_l2", 0.004 * (index + 1) * done**0.5)
                yield Measurement(stage, tokens, f"shift/{kind}/cosine", 1 - 1e-5 * (index + 1) * done)
            yield Measurement(stage, tokens, "shift/mean_l2", 0.8 * done)
    yield Measurement("continued-pretraining", steps * 1024, "bits_per_byte/dead_mass", 3e-9, target)
    for phase, seconds in (("corpora", 12.5), ("vocabulary", 40.2), ("training", 365.0), ("measuring", 92.3)):
        yield Measurement("continued-pretraining", steps * 1024, f"seconds/{phase}", seconds)


LADDERS = ("associative_recall", "arbitrary_labels", "position", "flipped_labels", "constant_offset", "sort")
LAYERS = 6


def _share(stage: str, tokens: int, name: str, value: float, half: float = 0.04, count: int = 300) -> Measurement:
    return Measurement(stage, tokens, name, value, None, value - half, value + half, count)


def _ladders(stage: str, tokens: int, lost: float) -> Iterator[Measurement]:
    """What each rung of the ladder scored; of the model after training 5 points less."""
    for number, name in enumerate(LADDERS):
        for k in (0, 1, 3, 8, 16):
            value = 0.2 + 0.1 * math.log2(1 + k) + 0.02 * number - lost
            yield _share(stage, tokens, f"probe/{name}/k{k}/exact_match", value)
            yield _share(stage, tokens, f"probe/{name}/k{k}/validity", 0.9)
            yield Measurement(stage, tokens, f"probe/{name}/k{k}/chance", 0.2)
            if k:
                yield _share(stage, tokens, f"probe/{name}/shuffled/k{k}/exact_match", 0.25)
        yield _share(stage, tokens, f"probe/{name}/auc", 0.45 - lost)
        yield _share(stage, tokens, f"probe/{name}/icl_gain", 0.2 - lost)


def _heavy(stage: str, tokens: int, lost: float) -> Iterator[Measurement]:
    """What is measured of the base model and at the end of a stage only."""
    yield from _ladders(stage, tokens, lost)
    for rule, value in (("first", 0.325), ("last", 0.317), ("repeat_last", 0.027), ("majority_place", 0.342)):
        yield Measurement(stage, tokens, f"probe/copain/baseline/{rule}", value)
    for task in TASKS:
        yield _share(stage, tokens, f"probe/copain/{task}/validity", 0.97, 0.02)
        yield _share(stage, tokens, f"probe/copain/{task}/choice_accuracy", 0.42 - lost, 0.08)
        yield _share(stage, tokens, f"probe/copain/5-shot-arrow/{task}/exact_match", 0.41 - lost, 0.08)
    yield _share(stage, tokens, "probe/copain/5-shot-arrow/exact_match", 0.41 - lost)
    for task, value in (("xstorycloze_eu", 0.58), ("belebele_eus_Latn", 0.31)):
        yield _share(stage, tokens, f"task/{task}/acc", value + lost, 0.03, 1511)
        yield _share(stage, tokens, f"task/{task}/acc_norm", value + lost + 0.02, 0.03, 1511)
        yield Measurement(stage, tokens, f"label_perplexity/{task}/gold", 5.1 + 9 * lost, None, 4.9, 5.9, 1511)
        yield Measurement(stage, tokens, f"label_perplexity/{task}/all", 6.2 + 9 * lost, None, 5.9, 7.1, 1511)
    for style, value in (("base", 0.2), ("question", 0.1)):
        yield Measurement(stage, tokens, f"generation/{style}/target_share", value + 12 * lost, None, None, None, 40)
        yield Measurement(stage, tokens, f"generation/{style}/repetition", 0.08, None, None, None, 40)
        yield Measurement(stage, tokens, f"generation/{style}/new_tokens", 210 if lost else 0, None, None, None, 40)


def _far(stage: str, tokens: int, done: float) -> Iterator[Measurement]:
    """How far the weights of each layer moved, and what else is known of the drift."""
    for layer in range(LAYERS):
        for kind, scale in (("attention", 1.0), ("mlp", 1.4), ("norm", 0.2)):
            yield Measurement(
                stage, tokens, f"shift/layer/{layer}/{kind}/relative_l2", 0.002 * scale * (1 + layer) * done**0.5
            )
        yield Measurement(
            stage, tokens, f"drift/cka/source/layer/{layer}", 1 - 0.01 * layer * done, None, None, None, 960
        )
        yield Measurement(stage, tokens, f"drift/layer/{layer}/mlp.up_proj/stable_rank", 3.5 + layer)
    yield Measurement(stage, tokens, "drift/cka/source", 1 - 0.03 * done, None, None, None, 960)
    yield Measurement(stage, tokens, "drift/kl", 0.06 * done, "en", 0.05 * done, 0.07 * done, 960)
    yield Measurement(stage, tokens, "drift/intruder_share", 0.05 * done, None, None, None, 40)
    yield Measurement(stage, tokens, "something/nobody_drew", 4.25 * done)


def write_everything(folder: Path, name: str = "everything", source_rise: float = 0.012, lost: float = 0.05) -> Path:
    """Write a finished run folder in which everything that can be measured was."""
    write_run(folder, name, source_rise=source_rise)
    last = "continued-pretraining"
    rows = [*_heavy("base", 0, 0.0), *_heavy("embeddings-only", 20_480, lost / 2), *_heavy(last, 102_400, lost)]
    for tokens, done in ((20_480, 0.2), (61_440, 0.6), (102_400, 1.0)):
        rows += _far("embeddings-only" if tokens == 20_480 else last, tokens, done)
    rows.append(Measurement("expanded", 0, "probe/copain/prompts_tokenised_differently", 0, None, None, None, 2100))
    rows.append(Measurement("expanded", 0, "probe/sort/prompts_tokenised_differently", 12, None, None, None, 300))
    rows += [Measurement("expanded", 0, f"probe/sort/prompts_tokens_{which}", n) for which, n in
             (("base", 9100), ("adapted", 9044))]  # fmt: skip
    rows.append(Measurement(last, 61_440, "alarm/forgetting/source", 0.06))
    rows += [_bits(last, 102_400, "eu", 1.40), Measurement(last, 102_400, "averaged/bits_per_byte", 1.39, "eu")]
    write_measurements(folder / "measurements.jsonl", rows)
    return folder


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def _write_vocabulary(folder: Path, texts: list[str], gate: str = "source segmentation unchanged") -> None:
    tokens = [{"id": 49_152 + i, "text": t, "count": 900 - i, "pieces": [1, 2]} for i, t in enumerate(texts)]
    _write_json(folder / "vocabulary/expansion.json", {
        "method": "expand", "num_old": 49_152, "num_new": len(texts), "num_rows": 51_200,
        "family": "byte-level BPE",
        "new_tokens": tokens,
    })  # fmt: skip
    gates = [
        {"name": "every new token reachable", "passed": True, "expected": 0, "found": 0, "evidence": []},
        {
            "name": gate,
            "passed": True,
            "expected": "0 documents",
            "found": "0 documents",
            "evidence": "1,000 documents",
        },
    ]
    _write_json(folder / "vocabulary/gates.json", gates)


def _write_corpus(folder: Path, name: str, sample: str, reason: str = "too short") -> None:
    _write_json(folder / "corpora" / name / "report.json", {
        "documents": 1_820, "bytes": 2_412_331, "words": 331_225,
        "train_documents": 1_729, "validation_documents": 91,
        "rejects": [{"reason": reason, "count": 14, "samples": [{"at": f"a.jsonl:3: {sample}", "text": sample}]}],
        "notes": {"blank lines": 12, sample: 1}, "longest_document": {"id": sample, "bytes": 81_200},
        "sources": [{"file": "a.jsonl.zst", "bytes": 812_331}],
        "scripts": {"Latin": 0.998, "Common": 0.002}, "leakage": 0.004,
    })  # fmt: skip


def write_run(
    folder: Path,
    name: str = "smollm2-basque",
    target: str = "eu",
    share: float = 0.8,
    source_rise: float = 0.012,
) -> Path:
    """Write a finished run folder as lingraft would, with made-up but plausible numbers."""
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(dump_recipe(recipe_of(name, target, share)), encoding="utf-8")
    versions = {"lingraft": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "transformers": "5.24.0"}
    _write_json(
        folder / "environment.json",
        {"versions": versions, "system": "Linux", "machine": "x86_64", "cpu_count": 2},
    )
    rows = [*_before(target), *_training(target, 100, source_rise)]
    write_measurements(folder / "measurements.jsonl", rows)
    words = "␣euskara ␣eta ␣herri ␣zuen ␣dira ␣urtean ␣bat ␣ere aren eko ␣hizkuntza ␣Bilbo ␣mendi".replace(
        "␣", " "
    ).split(" ")
    _write_vocabulary(folder, [f" {w}" for w in words if w] * 30)
    for corpus in (target, "en"):
        _write_corpus(folder, corpus, "Kaixo.")
    samples = [
        {"prompt": "Euskal Herria", "language": "eu", "base": "Euskal Herria is a region in the",
         "adapted": "Euskal Herria Europako lurralde bat da, eta"},
        {"prompt": "مرحبا", "language": "ar", "base": "مرحبا hello",
         "adapted": "مرحبا بكم في المدينة القديمة"},
    ]  # fmt: skip
    (folder / "samples.jsonl").write_text("".join(json.dumps(s, ensure_ascii=False) + "\n" for s in samples), "utf-8")
    return folder


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture(scope="session")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without replay: English is lost."""
    return write_run(tmp_path_factory.mktemp("runs") / "no-replay", "without-replay", share=1.0, source_rise=0.2)


@pytest.fixture(scope="session")
def everything_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_everything(tmp_path_factory.mktemp("runs") / "everything")


@pytest.fixture
def unfinished_run(tmp_path: Path) -> Path:
    """Killed in the first stage: a recipe, measurements with a torn last line, nothing else."""
    folder = tmp_path / "unfinished"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(dump_recipe(recipe_of("unfinished")), encoding="utf-8")
    write_measurements(folder / "measurements.jsonl", [*_before("eu"), *list(_training("eu", 5, 0.01))[:-5]])
    with (folder / "measurements.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"stage": "embeddings-only", "tok')
    return folder


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hostile text wherever a run folder can hold text."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "hostile", "hostile", "ar")
    with (folder / "recipe.yaml").open("a", encoding="utf-8") as file:
        file.write(f"# {SCRIPT}{CLOSING} https://user:password@example.org/ hf_{'a' * 30}\n")
    rows = [Measurement("base", 0, "bits_per_byte", 1.0, HOSTILE),
            Measurement(HOSTILE, 9, "bits_per_byte", 1.1, HOSTILE),
            Measurement(HOSTILE, 9, "loss", 1.1, HOSTILE), Measurement(HOSTILE, 9, f"seconds/{HOSTILE}", 1.1),
            Measurement("base", 0, f"probe/copain/{HOSTILE.replace('/', '')}/exact_match", 0.3)]  # fmt: skip
    name = HOSTILE.replace("/", "")
    for shape in HOSTILE_NAMES:
        rows += [Measurement(stage, t, shape.format(name), 0.3, HOSTILE, 0.2, 0.4, 9) for stage, t in MOMENTS]
        rows += [Measurement(stage, t, shape.format(name), 0.3, None, 0.2, 0.4, 9) for stage, t in MOMENTS]
    write_measurements(folder / "measurements.jsonl", rows)
    _write_vocabulary(folder, [HOSTILE, " <b>", "\u202e", "مرحبا", "�"], HOSTILE)
    _write_corpus(folder, "ar", HOSTILE, HOSTILE)
    _write_json(folder / "environment.json", {"versions": {HOSTILE: HOSTILE}, "system": HOSTILE})
    sample = {"prompt": HOSTILE, "language": HOSTILE, "base": HOSTILE, "adapted": "مرحبا \ud800"}
    (folder / "samples.jsonl").write_text(json.dumps(sample) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def write() -> Callable[..., Path]:
    return write_run


# Arms of a comparison: few items, and nothing but what is compared -----------------------------------------------------


def _arm_recipe(name: str, **more: Any) -> Recipe:
    stage = {"name": "only", "tokens": 20_480, "mix": {"eu": 0.8, "en": 0.2}, "lr": {"peak": 1e-4}}
    stage |= {"batch": {"tokens": 1024, "sequence_length": 256, "micro_batch": 2}} | more.pop("stage", {})
    languages = more.pop("languages", {"source": "en", "target": "eu"})
    corpora = {code: {"path": f"/x/{code}.jsonl"} for code in languages.values()}
    return Recipe.model_validate(
        {"name": name, "base_model": "org/model", "languages": languages, "corpora": corpora, "stages": [stage]} | more
    )


def _items(stage: str, eu: float, en: float, right: int, noise: int, *, averaged: bool = False) -> list[ItemRecord]:
    chooser, made = random.Random(noise), []
    for code, mean in (("eu", eu), ("en", en)):
        for n in range(30):
            scores = {"bits": 100 * (mean + chooser.gauss(0, 0.01)), "bytes": 100.0}
            made.append(ItemRecord(stage, 1, "bits_per_byte", f"d{n}", scores, code, averaged=averaged))
    for n in range(40):
        scores = {"exact_match": float(n < right)}
        made.append(ItemRecord(stage, 1, "probe/copain/min", str(n), scores, averaged=averaged))
    return made


def write_finished_arm(
    folder: Path, eu: float = 1.5, en: float = 1.0, right: int = 30, noise: int = 1,
    averaged: float | None = None, text: str = "1a", **more: Any,
) -> Path:  # fmt: skip
    """Write a finished run folder: target and source bits per byte of 30 documents each, right answers of 40."""
    recipe = _arm_recipe(more.pop("called", "arm"), **more)
    (folder / "steps").mkdir(parents=True)
    (folder / "recipe.yaml").write_text(dump_recipe(recipe), encoding="utf-8")
    last = recipe.stages[-1].name
    for code in recipe.corpora:
        marker = {"inputs": "x", "record": {"validation_sha256": text if code != "en" else "en"}}
        (folder / "steps" / f"corpus-{code}.json").write_text(json.dumps(marker))
    (folder / "steps" / f"stage-1-{last}.json").write_text(json.dumps({"inputs": "x", "record": {}}))
    items = _items("base", 2.0, 1.0, 30, 0) + _items(last, eu, en, right, noise)
    if averaged is not None:
        items += _items(last, averaged, en, right, noise, averaged=True)
    write_items(folder / "items.jsonl", items)
    write_measurements(folder / "measurements.jsonl", [Measurement(last, 1, "bits_per_byte", eu, "eu")])
    return folder


@pytest.fixture(scope="session")
def write_arm() -> Callable[..., Path]:
    return write_finished_arm
