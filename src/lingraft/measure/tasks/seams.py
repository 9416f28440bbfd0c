"""Where a prompt ends and an answer begins, in tokens.

A token may span the seam: with a grown vocabulary "eusk" + "ara" is one token. The answer then has no tokens of its
own, and a harness that cuts the text's ids behind the prompt's has nothing to score, or fails. Here the split is backed
off to the last place up to which all answers of an item begin with the prompt's own ids; from there on everything is
scored, the same piece of prompt in every answer, so that answers stay comparable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from lingraft.errors import MeasurementError
from lingraft.vocabulary import TokenizerFile

__all__ = ["Joined", "join_answers"]


@dataclass(frozen=True)
class Joined:
    """A prompt with one of its answers.

    Attributes:
        ids: of both, without the start token.
        start: the first id that is scored.
        is_crossed: whether a token spans the seam, or the prompt's last tokens are others in front of this answer.
        cut: tokens left out at the beginning, because the whole is longer than the window.
    """

    ids: tuple[int, ...]
    start: int
    is_crossed: bool
    cut: int

    @property
    def scored(self) -> tuple[int, ...]:
        """The ids that are scored; never none."""
        return self.ids[self.start :]


def join_answers(tokenizer: TokenizerFile, prompt: str, answers: Sequence[str], room: int) -> list[Joined]:
    """Return the prompt joined with each answer; all are scored from the same place on.

    White space at the prompt's end belongs to the answer, where most tokenizers put it. A prompt that is too long loses
    its beginning, the same tokens for every answer.

    Args:
        tokenizer: of the model.
        prompt: may be empty.
        answers: at least one, none empty.
        room: tokens that the model sees at once, without the start token.

    Raises:
        MeasurementError: there is no answer, one is empty, or one alone is longer than the room.
    """
    if not answers or not all(answers):
        raise MeasurementError(f"an answer behind the prompt {prompt[-40:]!r} is empty: there is nothing to score")
    stem = prompt.rstrip()
    alone, *wholes = tokenizer.encode_batch([stem, *(prompt + answer for answer in answers)])
    shared = [_shared(alone, ids) for ids in wholes]
    # An answer may be spelled so that its ids are the beginning of the prompt's; the last of them is scored then.
    start = min(*shared, *(len(ids) - 1 for ids in wholes)) if wholes else 0
    cut = max(0, max(map(len, wholes)) - room)
    if cut > start:
        longest = max(len(ids) - start for ids in wholes)
        raise MeasurementError(
            f"an answer behind the prompt {stem[-40:]!r} has {longest} tokens; the model sees {room} at once"
        )
    return [
        Joined(tuple(ids[cut:]), start - cut, length < len(alone), cut)
        for ids, length in zip(wholes, shared, strict=True)
    ]


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
