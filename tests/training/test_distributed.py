"""Training by several processes: what they make together is what one makes."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lingraft.errors import CheckpointError, LingraftError, MissingExtraError, TrainingError
from lingraft.model.base import load_model
from lingraft.model.shards import rows_of
from lingraft.training.distributed import ALONE, joined_ranks, read_tensors, shard, world_size, write_tensors

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from one_rank import carried_out  # noqa: E402

TABLE = "model.embed_tokens.weight"
NUM_OLD, NUM_IDS, STEPS = 380, 410, 4


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


SETTINGS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tied": False},
    "frozen body": {"tied": False, "train": "embeddings"},
    "new rows": {"train": "new_embeddings"},
    "scattered new rows, untied": {"tied": False, "train": "new_embeddings", "new_ids": list(range(3, NUM_IDS, 4))},
    "live average": {"average": "live"},
    "shadow average of a part": {"tied": False, "average": "shadow", "train": ["*.layers.1.*"]},
    "lookahead": {"average": "lookahead"},
    "a pull to the start": {"tied": False, "average": "to_start"},
    "uniform average": {"average": "uniform"},
    "documents apart": {"lengths": [5, 9, 30, 7] * 9, "plan": {"isolate": True}},
    "activations made again": {"plan": {"checkpoint_activations": True}},
    "one row at a time": {"plan": {"micro_batch": 1, "z_loss": 1e-2}},
    "sgd": {"plan": {"optimizer": "sgd", "optimizer_options": {}}},
    "carried moments": {"carried": "1 new rows-moments.safetensors"},
}
REFUSED: dict[str, dict[str, Any]] = {
    "extra_heads": {"plan": {"extra_heads": 1}},
    "saves_beside": {"plan": {"saves_beside": True}},
    "the optimiser muon": {"plan": {"optimizer": "muon"}},
    "the optimiser adafactor": {"plan": {"optimizer": "adafactor", "optimizer_options": {}}},
}
WALKS = ("live", "shadow", "lookahead", "to_start", "uniform")
ON_FOUR = ("untied", "scattered new rows, untied", "live average")


class Fleet:
    """Tasks that ranks have carried out, and the same by one process."""

    def __init__(self, folder: Path, bases: dict[bool, Path]) -> None:
        self.folder, self.bases = folder, bases

    def task(self, out: str, settings: dict[str, Any]) -> dict[str, Any]:
        given = dict(settings)
        base = self.bases[given.pop("tied", True)]
        if "carried" in given:
            given["carried"] = str(self.folder / given["carried"])
        where = self.folder / out
        given["plan"] = {"num_steps": STEPS} | given.get("plan", {})
        return {"base": str(base), "checkpoints": f"{where}-checkpoints", "out": str(where)} | given

    def walk(self, average: str) -> dict[str, Any]:
        """Return what goes from one number of ranks to the next."""
        where = {"checkpoints": str(self.folder / f"walk {average}"), "plan": {"num_steps": 7}}
        return {"average": average, "tied": False, "train": ["embeddings", "*.layers.0.*"]} | where

    def launch(self, *lists: tuple[int, list[dict[str, Any]]]) -> None:
        listed = self.folder / "tasks.json"
        listed.write_text(json.dumps([(count, free_port(), tasks) for count, tasks in lists]))
        script = [sys.executable, str(HERE / "one_rank.py"), str(listed)]
        done = subprocess.run(script, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr[-3000:]

    def told(self, out: str, rank: int = 0) -> dict[str, Any]:
        return json.loads(Path(f"{self.folder / out}-{rank}.json").read_text())

    def weights(self, out: str, kind: str = "weights") -> dict[str, torch.Tensor]:
        return load_file(Path(f"{self.folder / out}-{kind}.safetensors"))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, tied_folder: Path, untied_folder: Path) -> Fleet:
    """Every setting by two ranks, some by four, and one run that goes from 1 to 2 to 4 ranks."""
    made = Fleet(tmp_path_factory.mktemp("fleet"), {True: tied_folder, False: untied_folder})
    two = [made.task(f"2 {name}", settings) for name, settings in SETTINGS.items()]
    four = [made.task(f"4 {name}", SETTINGS[name]) for name in ON_FOUR]
    carried_out(made.task("1 new rows", SETTINGS["new rows"]))
    for average in WALKS:
        carried_out(made.task(f"walk 1 {average}", made.walk(average) | {"stop_after": 2}))
        two.append(made.task(f"walk 2 {average}", made.walk(average) | {"stop_after": 2}))
        four.append(made.task(f"walk 4 {average}", made.walk(average) | {"stop_after": 2}))
    two += [made.task(name, settings) for name, settings in REFUSED.items()]
    made.launch((2, two), (4, four))
    for average in WALKS:
        carried_out(made.task(f"walk end {average}", made.walk(average)))
        whole = {"checkpoints": str(made.folder / f"whole {average}")}
        carried_out(made.task(f"walk whole {average}", made.walk(average) | whole))
    return made


CASES = [(2, name) for name in SETTINGS] + [(4, name) for name in ON_FOUR]


@pytest.fixture(scope="module")
def alone(fleet: Fleet) -> Any:
    """What one process makes of a setting."""
    found: dict[str, dict[str, Any]] = {}

    def get(name: str) -> dict[str, Any]:
        if name not in found:
            found[name] = carried_out(fleet.task(f"1 {name}", SETTINGS[name]))
        return found[name]

    return get


@pytest.mark.parametrize(("count", "name"), CASES)
def test_ranks_end_with_the_weights_of_one_process(fleet: Fleet, alone: Any, count: int, name: str) -> None:
    """O-59: gathered averages are those of an undivided run."""
    expected, told = alone(name), fleet.told(f"{count} {name}")
    assert told["error"] is None
    assert told["still"] == expected["still"]
    for kind in ("weights", "averaged", "moments"):
        one, many = fleet.weights(f"1 {name}", kind), fleet.weights(f"{count} {name}", kind)
        assert one.keys() == many.keys()
        for parameter, weight in one.items():
            torch.testing.assert_close(many[parameter], weight, atol=1e-6, rtol=0, msg=f"{kind}: {parameter}")
    start = dict(load_model(Path(fleet.task("", SETTINGS[name])["base"])).named_parameters())
    moved = [float((weight - start[n].detach()).abs().max()) for n, weight in fleet.weights(f"{count} {name}").items()]
    assert max(moved) > 1e-3


@pytest.mark.parametrize(("count", "name"), CASES)
def test_o37_o50_ranks_read_what_one_process_reads(fleet: Fleet, alone: Any, count: int, name: str) -> None:
    expected = alone(name)["reports"]
    for rank in range(count):
        reports = fleet.told(f"{count} {name}", rank)["reports"]
        assert [report["step"] for report in reports] == list(range(1, STEPS + 1))
        for own, one in zip(reports, expected, strict=True):
            assert (own["tokens"], own["counts"], own["read"]) == (one["tokens"], one["counts"], one["read"])
            assert own["losses"] == pytest.approx(one["losses"], abs=1e-5)
            assert own["gradient_norm"] == pytest.approx(one["gradient_norm"], abs=1e-5)


@pytest.mark.parametrize("name", ["new rows", "scattered new rows, untied"])
def test_o31_only_new_rows_move_on_every_rank(fleet: Fleet, name: str) -> None:
    task = fleet.task("", SETTINGS[name])
    start, now = dict(load_model(Path(task["base"])).named_parameters()), fleet.weights(f"2 {name}")
    for table in [TABLE] if name == "new rows" else [TABLE, "lm_head.weight"]:
        moved = set((start[table] != now[table]).any(dim=1).nonzero().flatten().tolist())
        assert moved
        assert moved <= set(task.get("new_ids", range(NUM_OLD, NUM_IDS)))


def test_o60_each_rank_holds_its_part(fleet: Fleet) -> None:
    whole = sum(p.numel() for p in load_model(fleet.bases[False]).parameters())
    for count in (2, 4):
        parts = [fleet.told(f"{count} untied", rank)["held"] for rank in range(count)]
        assert sum(parts) == whole
        assert max(parts) < 1.1 * whole / count


@pytest.mark.parametrize("average", WALKS)
def test_a_run_goes_on_with_other_numbers_of_ranks(fleet: Fleet, average: str) -> None:
    """1 → 2 → 4 → 1 ranks, each for two steps; the average is carried along."""
    for count in (2, 4):
        assert fleet.told(f"walk {count} {average}")["error"][0] == "InterruptedRunError"
        for rank in range(count):
            steps = [report["step"] for report in fleet.told(f"walk {count} {average}", rank)["reports"]]
            assert steps == {2: [3, 4], 4: [5, 6]}[count]
    for kind in ("weights", "averaged"):
        one, many = (fleet.weights(f"walk {which} {average}", kind) for which in ("whole", "end"))
        assert one.keys() == many.keys()
        for name, weight in one.items():
            torch.testing.assert_close(many[name], weight, atol=1e-6, rtol=0, msg=f"{kind}: {name}")


SMALL = {
    "vocab_size": 420, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "gpt2": {"vocab_size": 420, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    | dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    "gpt_neox": {name: value for name, value in SMALL.items() if name != "num_key_value_heads"},
    "qwen2": SMALL | {"tie_word_embeddings": True},
    "qwen3": SMALL | {"head_dim": 8},
    "gemma2": SMALL | {"head_dim": 8},
}


@pytest.mark.slow
def test_other_architectures_are_divided_too(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    tasks = {}
    for name, numbers in OTHERS.items():
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **numbers))
        model.save_pretrained(tmp_path / name)
        for train in ("all", "new_embeddings"):
            places = {"base": str(tmp_path / name), "checkpoints": str(tmp_path / f"{name} {train} checkpoints")}
            tasks[f"{name} {train}"] = places | {"train": train, "plan": {"num_steps": 3}}
    made = Fleet(tmp_path, {})
    made.launch((2, [task | {"out": str(tmp_path / f"2 {name}")} for name, task in tasks.items()]))
    for name, task in tasks.items():
        alone = task | {"out": str(tmp_path / f"1 {name}"), "checkpoints": str(tmp_path / f"{name} alone")}
        assert carried_out(alone)["error"] is None
        one, two = made.weights(f"1 {name}"), made.weights(f"2 {name}")
        start = dict(load_model(Path(task["base"])).named_parameters())
        assert max(float((weight - start[n].detach()).abs().max()) for n, weight in two.items()) > 1e-3
        for parameter, weight in one.items():
            torch.testing.assert_close(two[parameter], weight, atol=1e-6, rtol=0, msg=f"{name}: {parameter}")


@pytest.mark.parametrize("name", REFUSED)
def test_what_ranks_cannot_do_together_is_refused_by_all(fleet: Fleet, name: str) -> None:
    for rank in (0, 1):
        kind, text = fleet.told(name, rank)["error"]
        assert kind == "TrainingError"
        assert text.endswith(f"{name} works in one process only, and there are 2")


def failing(rank: int, count: int, port: int, folder: Path) -> None:
    """One rank of the test below: something fails on rank 1, then something on rank 0."""
    os.environ |= {"RANK": f"{rank}", "WORLD_SIZE": f"{count}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}

    def fail(kind: type[Exception]) -> Any:
        raise kind(f"from rank {rank}")

    told: list[Any] = []
    with joined_ranks("cpu") as ranks:
        for action in (
            lambda: ranks.together(lambda: fail(CheckpointError) if rank == 1 else "fine"),
            lambda: ranks.first(lambda: fail(ZeroDivisionError)),
            lambda: ranks.first(lambda: fail(MissingExtraError)) if rank else ranks.first(lambda: {"a": [1, None]}),
            lambda: ranks.any(rank == 1),
            lambda: ranks.tell("word" if rank == 0 else None),
        ):
            try:
                told.append(action())
            except (LingraftError, ZeroDivisionError) as error:
                told.append([type(error).__name__, str(error)])
    (folder / f"{rank}.json").write_text(json.dumps(told))


def run_ranks(function: Callable[..., None], folder: Path) -> None:
    """Be two ranks that end by themselves."""
    made, port = multiprocessing.get_context("fork"), free_port()
    ranks = [made.Process(target=function, args=(rank, 2, port, folder)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
        assert rank.exitcode is not None


def test_what_fails_on_one_rank_fails_on_all(tmp_path: Path) -> None:
    run_ranks(failing, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first[0] == second[0] == ["CheckpointError", "from rank 1"]
    assert first[1] == ["ZeroDivisionError", "from rank 0"]
    assert second[1] == ["TrainingError", "from rank 0"]
    assert first[2:] == second[2:] == [{"a": [1, None]}, True, "word"]


def leaving(rank: int, count: int, port: int, folder: Path) -> None:
    """One rank of the test below: rank 1 dies where rank 0 waits for it."""
    os.environ |= {"RANK": f"{rank}", "WORLD_SIZE": f"{count}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    try:
        with joined_ranks("cpu") as ranks:
            ranks.any(False)
            if rank == 1:
                os._exit(9)
            ranks.any(True)
    except TrainingError as error:
        (folder / f"{rank}.txt").write_text(str(error))


def test_a_rank_that_is_killed_does_not_leave_the_others_waiting(tmp_path: Path) -> None:
    run_ranks(leaving, tmp_path)
    assert "rank 0: another process has ended or cannot be reached" in (tmp_path / "0.txt").read_text()


@pytest.mark.parametrize(
    ("num_rows", "count", "expected"),
    [
        (10, 2, [(0, 5), (5, 10)]),
        (10, 4, [(0, 3), (3, 6), (6, 9), (9, 10)]),
        (5, 4, [(0, 2), (2, 4), (4, 5), (5, 5)]),
        (1, 3, [(0, 1), (1, 1), (1, 1)]),
    ],
)
def test_rows_are_divided_as_torch_divides_them(num_rows: int, count: int, expected: list[tuple[int, int]]) -> None:
    assert [rows_of(rank, count, num_rows) for rank in range(count)] == expected
    pieces = torch.arange(num_rows).chunk(count)
    assert [len(piece) for piece in pieces] == [end - begin for begin, end in expected if end > begin]


def test_whole_tensors_are_written_as_safetensors(tmp_path: Path) -> None:
    tensors = {
        "b": torch.arange(6, dtype=torch.bfloat16).view(2, 3), "a": torch.tensor(3.5), "long": torch.arange(5),
        "flag": torch.tensor([True, False, True]), "none": torch.zeros(0, 4),
    }  # fmt: skip
    write_tensors(tmp_path / "made.safetensors", tensors)
    found = load_file(tmp_path / "made.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(found[name], tensor, atol=0, rtol=0)
    assert read_tensors(tmp_path / "made.safetensors", {"b": tensors["b"]}).keys() == tensors.keys()
    with pytest.raises(OSError, match="no-such-folder"):
        write_tensors(tmp_path / "no-such-folder" / "made.safetensors", tensors)


def test_alone_nothing_is_joined_or_divided(tied_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined_ranks("cpu") as ranks:
        assert ranks == ALONE
    model = load_model(tied_folder)
    weights = list(model.parameters())
    assert shard(model, ALONE)(max, 1, 2) == 2
    assert all(one is other for one, other in zip(model.parameters(), weights, strict=True))


def test_an_environment_that_is_not_torchruns_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for wrong in ("0", "-2", "two"):
        monkeypatch.setenv("WORLD_SIZE", wrong)
        with pytest.raises(TrainingError, match=f"WORLD_SIZE must be a number from 1, not {wrong!r}"):
            world_size()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingError, match="RANK and MASTER_ADDR and MASTER_PORT does not fit; start with torchrun"):
        joined_ranks("cpu").__enter__()
    for name, value in (("RANK", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(TrainingError, match="RANK '2' does not fit"):
        joined_ranks("cpu").__enter__()
