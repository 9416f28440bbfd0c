"""Names that change sides: after some demonstrations two labels are swapped, and the later ones are to be followed."""

from collections.abc import Sequence

from lingraft.measure.items import ItemStream
from lingraft.measure.probes.label_rules import RULES, draw_labelled, draw_symbols
from lingraft.measure.probes.ladder import NUM_ITEMS, SHOTS, Chain, Query, check_ladder, climb
from lingraft.measure.probes.probe import ProbeContext, ProbeResult, probe

__all__ = ["flipped_labels"]

_BEFORE = 4


def _chain(stream: ItemStream, index: int, shots: tuple[int, ...]) -> Chain:
    """Return four inputs with their symbols, and more with the symbols swapped; the last speak for the answer."""
    rule, kind = index % len(RULES), index // len(RULES) % 2
    symbols = draw_symbols(stream)
    inputs, asked = draw_labelled(stream, rule, _BEFORE + shots[-1], kind)
    before = tuple((one, symbols[of]) for one, of in inputs[:_BEFORE])
    swapped = tuple((one, symbols[1 - of]) for one, of in inputs[_BEFORE:])
    query = Query(asked, symbols[1 - kind], symbols)
    return Chain(swapped, dict.fromkeys((0, *shots), query), before)


@probe("flipped_labels", reference="arXiv 2303.03846", light=False, text=True, check=check_ladder)
def flipped_labels(
    context: ProbeContext, *, num_items: int = NUM_ITEMS, shots: int | Sequence[int] = SHOTS, control: bool = True
) -> ProbeResult:
    """Return how well the labels of the last k demonstrations are followed, against four before with them swapped.

    Inputs are those of ``arbitrary_labels``; chance is 1/2, and a model that still follows the first four is below it.
    Scores: :func:`lingraft.measure.probes.ladder.climb`, whose area and gain are of ``choice_accuracy``.

    Raises:
        MeasurementError: there is no item, or a number of demonstrations that is none.
    """
    return climb(
        context,
        _chain,
        key="flipped_labels/1",
        num_items=num_items,
        shots=shots,
        score="choice_accuracy",
        control=control,
    )
