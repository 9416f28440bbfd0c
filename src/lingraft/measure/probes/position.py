"""Taking the member at one place of a list, which place being shown and not said."""

from collections.abc import Sequence

from lingraft.measure.items import ItemStream
from lingraft.measure.probes.ladder import NUM_ITEMS, SHOTS, Chain, Query, check_ladder, climb
from lingraft.measure.probes.probe import ProbeContext, ProbeResult, probe

__all__ = ["position"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SIZE = 5


def _chain(stream: ItemStream, index: int, shots: tuple[int, ...]) -> Chain:
    """Return lists of five letters and the one at a place, which goes through all five."""
    place = index % _SIZE
    query = stream.sample(_LETTERS, _SIZE)
    shown: list[tuple[str, str]] = []
    while len(shown) < shots[-1]:
        members = stream.sample(_LETTERS, _SIZE)
        if members[place] != query[place]:
            shown.append((" ".join(members), members[place]))
    asked = Query(" ".join(query), query[place], tuple(query))
    return Chain(tuple(shown), dict.fromkeys((0, *shots), asked))


@probe("position", reference="arXiv 2208.01066", light=False, text=True, check=check_ladder)
def position(
    context: ProbeContext, *, num_items: int = NUM_ITEMS, shots: int | Sequence[int] = SHOTS, control: bool = True
) -> ProbeResult:
    """Return how well the member at one place of a list of five letters is taken; chance is 1/5.

    Scores: :func:`lingraft.measure.probes.ladder.climb`, whose area and gain are of ``exact_match``.

    Raises:
        MeasurementError: there is no item, or a number of demonstrations that is none.
    """
    return climb(
        context, _chain, key="position/1", num_items=num_items, shots=shots, score="exact_match", control=control
    )
