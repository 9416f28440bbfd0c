"""Putting three digits in order."""

from collections.abc import Sequence
from itertools import combinations, permutations

from lingraft.measure.items import ItemStream
from lingraft.measure.probes.ladder import NUM_ITEMS, SHOTS, Chain, Query, check_ladder, climb
from lingraft.measure.probes.probe import ProbeContext, ProbeResult, probe

__all__ = ["sort"]

_SETS = tuple(combinations("123456789", 3))


def _chain(stream: ItemStream, index: int, shots: tuple[int, ...]) -> Chain:
    """Return sets of three digits, each in some order and in its own; the query's order goes through all six."""
    *sets, asked = stream.sample(_SETS, shots[-1] + 1)
    shown = tuple((" ".join(stream.shuffled(members)), " ".join(members)) for members in sets)
    orders = tuple(" ".join(order) for order in permutations(asked))
    return Chain(shown, dict.fromkeys((0, *shots), Query(orders[index % len(orders)], orders[0], orders)))


@probe("sort", reference="https://github.com/google/BIG-bench", light=False, text=True, check=check_ladder)
def sort(
    context: ProbeContext, *, num_items: int = NUM_ITEMS, shots: int | Sequence[int] = SHOTS, control: bool = True
) -> ProbeResult:
    """Return how well three digits are put in order; chance is 1/6 among their orders.

    Scores: :func:`lingraft.measure.probes.ladder.climb`, whose area and gain are of ``exact_match``.

    Raises:
        MeasurementError: there is no item, or a number of demonstrations that is none.
    """
    return climb(context, _chain, key="sort/1", num_items=num_items, shots=shots, score="exact_match", control=control)
