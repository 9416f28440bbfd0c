"""Writing a list again, as it is or from its end; which of the two is shown and not said."""

from collections.abc import Sequence

from lingraft.measure.items import ItemStream
from lingraft.measure.probes.ladder import NUM_ITEMS, SHOTS, Chain, Query, check_ladder, climb
from lingraft.measure.probes.probe import ItemScore, ProbeContext, ProbeResult, ProbeScore, probe

__all__ = ["copy_reverse"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SIZE = 4


def _copy(stream: ItemStream, index: int, shots: tuple[int, ...]) -> Chain:  # noqa: ARG001 - nothing goes in turn
    return _chain(stream, shots, 1)


def _reverse(stream: ItemStream, index: int, shots: tuple[int, ...]) -> Chain:  # noqa: ARG001 - nothing goes in turn
    return _chain(stream, shots, -1)


def _chain(stream: ItemStream, shots: tuple[int, ...], step: int) -> Chain:
    """Return lists of four letters, each with itself read in a direction."""
    lists: list[list[str]] = []
    while len(lists) <= shots[-1]:
        members = stream.sample(_LETTERS, _SIZE)
        if members not in lists:
            lists.append(members)
    pairs = [(" ".join(members), " ".join(members[::step])) for members in lists]
    asked, answer = pairs.pop()
    query = Query(asked, answer, (asked, " ".join(asked.split()[::-1])))
    return Chain(tuple(pairs), dict.fromkeys((0, *shots), query))


@probe("copy_reverse", reference="https://github.com/google/BIG-bench", light=False, text=True, check=check_ladder)
def copy_reverse(
    context: ProbeContext, *, num_items: int = NUM_ITEMS, shots: int | Sequence[int] = SHOTS, control: bool = True
) -> ProbeResult:
    """Return how well lists of four letters are copied (``copy/…``) and reversed (``reverse/…``).

    The choices are the list and its reverse; ``token_accuracy`` is the share of elements that are right behind right
    ones. Scores: :func:`lingraft.measure.probes.ladder.climb`, whose area and gain are of ``exact_match``.

    Raises:
        MeasurementError: there is no item, or a number of demonstrations that is none.
    """
    scores: list[ProbeScore] = []
    items: list[ItemScore] = []
    for place, make in (("copy", _copy), ("reverse", _reverse)):
        part = climb(
            context,
            make,
            key=f"copy_reverse/1/{place}",
            num_items=num_items,
            shots=shots,
            score="exact_match",
            control=control,
            place=f"{place}/",
        )
        scores += part.scores
        items += part.items
    return ProbeResult(scores, items)
