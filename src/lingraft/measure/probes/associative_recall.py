"""Recalling a pair that was shown once: of k pairs, the value of one of the keys."""

from collections.abc import Sequence

from lingraft.measure.items import ItemStream
from lingraft.measure.probes.ladder import NUM_ITEMS, SHOTS, Chain, Query, check_ladder, climb
from lingraft.measure.probes.probe import ProbeContext, ProbeResult, probe

__all__ = ["associative_recall"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _chain(stream: ItemStream, index: int, shots: tuple[int, ...]) -> Chain:
    """Return pairs of three letters and a number of two digits; the one that is asked for goes through all places."""
    keys: list[str] = []
    while len(keys) < shots[-1]:
        key = "".join(stream.sample(_LETTERS, 3))
        if key not in keys:
            keys.append(key)
    shown = tuple(zip(keys, map(str, stream.sample(range(10, 100), len(keys))), strict=True))
    queries = {k: Query(*shown[index % k], tuple(value for _, value in shown[:k])) for k in shots}
    return Chain(shown, queries | {0: Query(*shown[0], tuple(value for _, value in shown))})


@probe("associative_recall", reference="arXiv 2312.04927", light=False, text=True, check=check_ladder)
def associative_recall(
    context: ProbeContext, *, num_items: int = NUM_ITEMS, shots: int | Sequence[int] = SHOTS, control: bool = True
) -> ProbeResult:
    """Return how well the value of one of k keys is recalled that were shown with their values.

    Keys are three letters, values two digits; the choices are the values shown, so chance is 1/k. Scores:
    :func:`lingraft.measure.probes.ladder.climb`, whose area and gain are of ``choice_accuracy``: its fall follows
    damage, while exact match may rise where a model only keeps to the format more often (docs/probes.md).

    Raises:
        MeasurementError: there is no item, or a number of demonstrations that is none.
    """
    return climb(
        context,
        _chain,
        key="associative_recall/1",
        num_items=num_items,
        shots=shots,
        score="choice_accuracy",
        control=control,
    )
