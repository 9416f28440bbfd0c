"""Tasks from a folder, asked end to end: by an oracle, by one that always errs, and by a tiny model."""

import math
import socket

import pytest
from lm_eval.api.model import LM

from lingraft.measure.label_perplexity import Label, label_perplexity
from lingraft.measure.tasks.loading import load_tasks
from lingraft.measure.tasks.order import TaskOrder
from lingraft.measure.tasks.running import ask_labels, check_seams, run_tasks


class Oracle(LM):
    """Knows which answer is right, or errs on purpose."""

    def __init__(self, *, is_right: bool = True) -> None:
        super().__init__()
        self.is_right = is_right

    def loglikelihood(self, requests):
        found = []
        for request in requests:
            gold = request.doc.get("answer", request.doc.get("right"))
            found.append((-1.0 if (request.idx == gold) is self.is_right else -50.0, False))
        return found

    def loglikelihood_rolling(self, requests):
        return [-math.log(2) * len(request.args[0].encode()) for request in requests]

    def generate_until(self, requests):
        return [f" {request.doc['a'] + request.doc['b']} " if self.is_right else "no" for request in requests]


@pytest.fixture
def offline(monkeypatch):
    """Every attempt to reach another machine fails."""

    def refuse(*arguments, **options):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def load(folder, name: str, **options):
    return load_tasks(TaskOrder(name, folder=folder, **options))


def test_an_oracle_gets_everything_right_without_a_network(tasks_folder, offline) -> None:
    tasks = [task for name in ("colours", "endings", "sums", "pages") for task in load(tasks_folder, name)]
    results = {result.loaded.name: result for result in run_tasks(tasks, Oracle())}
    assert results["colours"].metrics["acc"].value == 1.0
    assert results["endings"].metrics["acc"].value == 1.0
    assert results["sums"].metrics["exact_match-strip"].value == 1.0
    assert results["pages"].metrics["bits_per_byte"].value == pytest.approx(1.0)
    assert [len(results[name].items) for name in ("colours", "endings", "sums", "pages")] == [12, 10, 2, 2]
    # Only our own scorer tells the perplexity of labels.
    assert results["colours"].labels is None


def test_one_that_errs_gets_nothing_right(tasks_folder) -> None:
    tasks = [task for name in ("colours", "sums") for task in load(tasks_folder, name)]
    colours, sums = run_tasks(tasks, Oracle(is_right=False))
    assert colours.metrics["acc"].value == sums.metrics["exact_match-strip"].value == 0.0


def test_a_model_is_asked_and_every_item_leaves_its_scores(tasks_folder, adapter, scorer, tokenizer) -> None:
    (result,) = run_tasks(load(tasks_folder, "colours"), adapter)
    item, asked = result.items[0], result.loaded.items[0]
    prompt = asked.requests[0].args[0]
    assert prompt.count("Galdera:") == 3
    told = []
    for label in " A", " B", " C":
        ids, start = tokenizer.encode(prompt + label), len(tokenizer.encode(prompt))
        told.append(scorer.score([ids])[0].log_probabilities[start:].sum().item())
    assert item.scores["acc"] == float(max(range(3), key=told.__getitem__) == 0)
    assert item.scores["gold_log_probability"] == pytest.approx(told[0], abs=1e-4)
    assert {"acc", "acc_norm", "acc_bytes", "gold_tokens"} <= item.scores.keys()
    mean = sum(one.scores["acc"] for one in result.items) / 12
    assert result.metrics["acc"].value == pytest.approx(mean)
    assert {one.cluster for one in result.items} == {asked.cluster, *(i.cluster for i in result.loaded.items)}
    assert len({one.cluster for one in result.items}) == 3
    assert len({one.name for one in result.items}) == 12


def test_it_gives_what_lm_eval_gives_over_the_same_requests(tasks_folder, adapter) -> None:
    import lm_eval
    from lm_eval.evaluator import evaluate

    tasks = [task for name in ("colours", "endings") for task in load(tasks_folder, name, shots=0)]
    mine = {result.loaded.name: result.metrics for result in run_tasks(tasks, adapter)}
    theirs = evaluate(adapter, {"tasks": {task.name: task.task for task in tasks}, "groups": {}, "group_map": {}},
                      bootstrap_iters=0)["results"]  # fmt: skip
    assert lm_eval.__version__
    for name in mine:
        assert mine[name]["acc"].value == pytest.approx(theirs[name]["acc,none"])
    assert mine["endings"]["acc_norm"].value == pytest.approx(theirs["endings"]["acc_norm,none"])


def test_label_perplexity_is_that_of_the_labels_behind_their_prompts(tasks_folder, adapter, scorer, tokenizer) -> None:
    (loaded,) = load(tasks_folder, "endings")
    (result,) = run_tasks([loaded], adapter)
    items = []
    for item in loaded.items:
        labels = []
        for request in item.requests:
            prompt, answer = request.args
            ids, start = tokenizer.encode(prompt + answer), len(tokenizer.encode(prompt))
            assert ids[:start] == tokenizer.encode(prompt)
            told = scorer.score([ids])[0].log_probabilities[start:]
            labels.append(Label(told.sum().item(), len(told), len(answer.encode())))
        items.append((labels, [item.doc["right"]]))
    expected = label_perplexity(items)
    assert result.labels is not None
    assert result.labels.gold == pytest.approx(expected.gold, rel=1e-4)
    assert result.labels.all == pytest.approx(expected.all, rel=1e-4)
    light = ask_labels(loaded, adapter, 4)
    names = sorted(item.name for item in loaded.items)[:4]
    chosen = [asked for asked, item in zip(items, loaded.items, strict=True) if item.name in names]
    assert light is not None
    assert (light.items, light.gold) == (4, pytest.approx(label_perplexity(chosen).gold, rel=1e-4))
    assert ask_labels(load(tasks_folder, "sums")[0], adapter, 4) is None


def test_seams_are_looked_at_before_the_model_is_asked(tasks_folder, adapter, monkeypatch) -> None:
    def refuse(*arguments, **options):
        raise AssertionError("the model was asked")

    monkeypatch.setattr(adapter.scorer, "score", refuse)
    (loaded,) = load(tasks_folder, "colours")
    check = check_seams(loaded, adapter.tokenizer, adapter.room)
    assert check.crossed == ()
    assert check.cut == ()
    loaded.items[3].requests[1].arguments = (loaded.items[3].requests[1].args[0], "")
    with pytest.raises(Exception, match=r"task 'colours', item \w+: an answer .* is empty"):
        run_tasks([loaded], adapter)
