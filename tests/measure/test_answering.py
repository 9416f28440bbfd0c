"""Questions with choices: what counts as said, and how likely each choice is."""

import pytest
import torch

from lingraft.measure.answering import Answered, ModelAnswerer, Question, Questioner, Reply, ask
from lingraft.measure.scoring import Scorer
from lingraft.measure.token_tree import BranchScore

QUESTION = Question("min", "0", "b, c ->", (" b", " c"), " b")


class Fixed(Scorer):
    """Prefers the ids of one text, and goes on with another behind it; remembers what it was asked."""

    def __init__(self, model, tokenizer, text: str, behind: str) -> None:
        super().__init__(model, num_ids=tokenizer.num_ids, condition_id=0)
        self.ids, self.behind = tokenizer.encode(text), tokenizer.encode(behind)[0]

    def score_branches(self, groups):
        self.asked = groups
        return [[self._of(branch) for branch in group] for group in groups]

    def _of(self, branch) -> BranchScore:
        wanted, liked = branch.ids[branch.start :], [*self.ids, self.behind][branch.start :]
        greedy = [*liked, *[1] * len(wanted)][: len(wanted) + 1]
        return BranchScore(tuple(-0.5 if a == b else -2.0 for a, b in zip(wanted, greedy, strict=False)), tuple(greedy))


def scores(model, tokenizer, text: str, behind: str = "\n") -> dict[str, float]:
    return ask(ModelAnswerer(Fixed(model, tokenizer, text, behind), tokenizer), [[QUESTION]])[0].scores


def test_the_answer_is_said_if_each_token_is_the_first_choice_and_a_line_end_comes_next(model, tokenizer) -> None:
    found = scores(model, tokenizer, "b, c -> b")
    assert (found["exact_match"], found["validity"], found["choice_accuracy"], found["token_accuracy"]) == (1, 1, 1, 1)
    assert found["gold_log_probability"] == -0.5 * (
        len(tokenizer.encode("b, c -> b")) - len(tokenizer.encode("b, c ->"))
    )


def test_another_member_is_valid_and_wrong(model, tokenizer) -> None:
    found = scores(model, tokenizer, "b, c -> c")
    assert (found["exact_match"], found["validity"], found["choice_accuracy"]) == (0, 1, 0)


def test_a_member_that_goes_on_is_no_answer(model, tokenizer) -> None:
    """ "b" with more behind it is another word."""
    found = scores(model, tokenizer, "b, c -> b", behind="e")
    assert (found["exact_match"], found["validity"], found["choice_accuracy"], found["token_accuracy"]) == (0, 0, 1, 1)


def test_a_control_token_ends_an_answer_too(model, tokenizer) -> None:
    answerer = ModelAnswerer(Fixed(model, tokenizer, "b, c -> b", "\n"), tokenizer)
    assert answerer._is_end(tokenizer.id_of("<|endoftext|>"))
    assert not answerer._is_end(tokenizer.encode("b")[0])


def test_ties_and_scores_by_hand() -> None:
    question = Question("t", "0", "?", (" a", " bb", " c"), " c")
    found = Answered(question, Reply((-2.0, -0.5, -1.0), " bb", 0.25)).scores
    assert found == {
        "exact_match": 0,
        "validity": 1,
        "choice_accuracy": 0,
        "gold_log_probability": -1.0,
        "token_accuracy": 0.25,
    }


def test_a_real_model_agrees_with_its_own_logits(model, tokenizer) -> None:
    """The slow way: the whole text of each choice, position by position."""
    questions = [QUESTION, Question("min", "1", "b, c -> b\nd, e ->", (" d", " e"), " e")]
    scorer = Scorer(model, num_ids=tokenizer.num_ids, condition_id=0)
    for answered in ask(ModelAnswerer(scorer, tokenizer), [questions]):
        start = len(tokenizer.encode(answered.question.prompt))
        for choice, found in zip(answered.question.choices, answered.reply.log_probabilities, strict=True):
            ids = tokenizer.encode(answered.question.prompt + choice)
            with torch.no_grad():
                logits = model(torch.tensor([[0, *ids]])).logits[0, :, : tokenizer.num_ids].log_softmax(1)
            assert found == pytest.approx(sum(logits[n, ids[n]].item() for n in range(start, len(ids))), abs=1e-4)


def test_a_token_that_spans_the_seam_is_scored_whole(model, tokenizer) -> None:
    """The prompt's last letters and the answer are one token: scoring begins before it, and nothing is empty."""
    question = Question("t", "0", "the li", ("ght", "d"), "ght")
    fixed = Fixed(model, tokenizer, "the light", "\n")
    found = ask(ModelAnswerer(fixed, tokenizer), [[question]])[0]
    assert len(tokenizer.encode("the light")) <= len(tokenizer.encode("the li"))
    assert all(len(branch.ids) > branch.start for branch in fixed.asked[0])
    assert found.scores["exact_match"] == 1


def test_a_questioner_keeps_what_it_is_asked_and_knows_nothing() -> None:
    keeper = Questioner()
    found = ask(keeper, [[QUESTION], [QUESTION]])
    assert keeper.questions == [QUESTION, QUESTION]
    assert [(a.reply.said, a.scores["validity"]) for a in found] == [(None, 0), (None, 0)]
