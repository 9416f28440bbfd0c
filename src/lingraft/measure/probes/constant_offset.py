"""Adding a number that is shown and not said."""

from collections.abc import Sequence

from lingraft.measure.items import ItemStream
from lingraft.measure.probes.ladder import NUM_ITEMS, SHOTS, Chain, Query, check_ladder, climb
from lingraft.measure.probes.probe import ProbeContext, ProbeResult, probe

__all__ = ["constant_offset"]

_MOST = 9


def _chain(stream: ItemStream, index: int, shots: tuple[int, ...]) -> Chain:
    """Return numbers of two digits and the same plus an offset, which goes through 1 … 9."""
    offset = index % _MOST + 1
    *numbers, asked = stream.sample(range(10, 100 - _MOST), shots[-1] + 1)
    shown = tuple((str(number), str(number + offset)) for number in numbers)
    query = Query(str(asked), str(asked + offset), tuple(str(asked + n) for n in range(1, _MOST + 1)))
    return Chain(shown, dict.fromkeys((0, *shots), query))


@probe("constant_offset", reference="arXiv 2208.01066", light=False, text=True, check=check_ladder)
def constant_offset(
    context: ProbeContext, *, num_items: int = NUM_ITEMS, shots: int | Sequence[int] = SHOTS, control: bool = True
) -> ProbeResult:
    """Return how well a number between 1 and 9 is added that only the demonstrations tell; chance is 1/9.

    Scores: :func:`lingraft.measure.probes.ladder.climb`, whose area and gain are of ``exact_match``.

    Raises:
        MeasurementError: there is no item, or a number of demonstrations that is none.
    """
    return climb(
        context, _chain, key="constant_offset/1", num_items=num_items, shots=shots, score="exact_match", control=control
    )
