"""Long loops hear a stop, wherever they are."""

import signal

import pytest
import torch

from lingraft.batching import batches_of, first_bytes
from lingraft.errors import InterruptedRunError, RunFolderError
from lingraft.pipeline.stopping import Stopper
from lingraft.polling import poll, polled


def test_outside_nothing_stops() -> None:
    poll()
    with polled(lambda: False):
        poll()
    poll()


def test_inside_a_stop_is_heard_and_afterwards_forgotten() -> None:
    with polled(lambda: True), pytest.raises(InterruptedRunError, match="in the middle of a step"):
        poll()
    poll()


def test_the_inner_one_is_asked() -> None:
    with polled(lambda: True), polled(lambda: False):
        poll()


def test_a_signal_is_heard_by_loops() -> None:
    with Stopper():
        poll()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(InterruptedRunError):
            poll()
    poll()


def _tokenising(tokenizer, folder) -> None:
    from lingraft.corpus import build_store
    from lingraft.corpus.parts import Encoding

    keys = {"tokenizer_sha256": "t", "corpus_sha256": "c"}
    build_store(["a b"], Encoding(tokenizer.encode_batch, 1000, None, 0), folder, **keys)


def _preparing(corpora_folder, folder) -> None:
    from lingraft.corpus import Preparation, find_place, prepare_corpus

    place = find_place((str(corpora_folder / "eu.jsonl"),), "corpora.eu.path")
    prepare_corpus("eu", folder, place, Preparation(validation=0.1))


def _measuring(base) -> None:
    from lingraft.measure.scoring import Scorer
    from lingraft.model.base import load_model

    Scorer(load_model(base), num_ids=300, condition_id=0).score([[1, 2, 3]])


def _speaking(base, tokenizer) -> None:
    from lingraft.model.base import load_model
    from lingraft.model.generate import continue_text

    continue_text(load_model(base), tokenizer, "The", condition_id=0, end_id=0, max_tokens=5)


def _learning(tokenizer) -> None:
    from lingraft.vocabulary import LearnOptions, expand_vocabulary

    expand_vocabulary(tokenizer, {"eu": ["gelaxka gelaxka"] * 9}, ["the"], LearnOptions(num_tokens=3, min_count=2))


@pytest.mark.parametrize("what", ["tokenising", "preparing", "measuring", "speaking", "learning", "batches", "texts"])
def test_every_long_loop_stops_when_it_is_asked_to(what: str, tokenizer, tied_folder, corpora_folder, tmp_path) -> None:
    work = {
        "tokenising": lambda: _tokenising(tokenizer, tmp_path / "store"),
        "preparing": lambda: _preparing(corpora_folder, tmp_path / "corpus"),
        "measuring": lambda: _measuring(tied_folder),
        "speaking": lambda: _speaking(tied_folder, tokenizer),
        "learning": lambda: _learning(tokenizer),
        "batches": lambda: list(batches_of(range(4), 2)),
        "texts": lambda: list(first_bytes(["a", "b"], 10)),
    }[what]
    work()
    torch.manual_seed(0)
    for path in tmp_path.iterdir():
        path.rename(path.with_name("done"))
    with polled(lambda: True), pytest.raises(InterruptedRunError):
        work()
    assert [path.name for path in tmp_path.iterdir() if path.name != "done"] == []


def _hearing(calls: int):
    """Return what is asked: a stop comes after so many polls, so that it falls within the loop."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def _guards_start(folder):
    from lingraft.model.base import head_of, load_model
    from lingraft.training.companion import StageStart

    model = load_model(folder)
    return StageStart(model, head_of(model, 300), dict(model.named_parameters()), 3)


def _fisher(folder) -> None:
    from lingraft.training.guards.ewc import diagonal_fisher
    from lingraft.training.guards.guard import SourceText

    pieces = [torch.arange(9) + n for n in range(4)]
    diagonal_fisher(_guards_start(folder), SourceText(lambda _: pieces, lambda _, make: make()), 32)


def _shielding(folder) -> None:
    from lingraft.training.guards.source_shielded import input_norms

    input_norms(_guards_start(folder), [torch.arange(9) + n for n in range(4)])


def _opening(folder) -> None:
    from lingraft.corpus import open_store

    open_store(folder / "store", tokenizer_sha256="t", corpus_sha256="c")


def _checking_weights(folder) -> None:
    from lingraft.model.base import load_model
    from lingraft.pipeline.training import refuse_changed_weights

    with pytest.raises(RunFolderError):
        refuse_changed_weights(load_model(folder), "another", folder)


def _looking_at_checkpoints(folder) -> None:
    from lingraft.training.checkpoint import latest_checkpoint

    latest_checkpoint(folder / "checkpoints", {})


def _interpolating(folder) -> None:
    from lingraft.model.base import load_model
    from lingraft.model.interpolate import interpolate, merge_weights

    model = load_model(folder)
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    interpolate(model, weights, weights, 0.5, ())
    merge_weights([weights, weights], "linear")


def _shift(folder) -> None:
    from lingraft.measure.shift import measure_shift
    from lingraft.model.base import load_model

    measure_shift(load_model(folder), folder, new_ids=(), num_ids=300)


def test_hashing_weights_and_what_guards_learn_hear_a_stop_in_the_middle(tokenizer, tied_folder, tmp_path) -> None:
    """Each loop is asked more than once, and the second time it stops."""
    from lingraft.training.checkpoint import save_checkpoint

    _tokenising(tokenizer, tmp_path / "store")
    with polled(lambda: True):
        # What writes a checkpoint must not stop: it is how a stop is answered.
        save_checkpoint(
            tmp_path / "checkpoints", 1, {"model": {"w": torch.zeros(3)}, "o": {"v": torch.ones(2)}}, {}, {}
        )
    on_weights = (_fisher, _shielding, _checking_weights, _interpolating, _shift)
    works = dict.fromkeys(on_weights, tied_folder) | {_opening: tmp_path, _looking_at_checkpoints: tmp_path}
    for work, folder in works.items():
        with polled(_hearing(1)), pytest.raises(InterruptedRunError):
            work(folder)
