"""Sorting into two kinds whose names mean nothing: the rule is known from nowhere but the demonstrations."""

from collections.abc import Sequence

from lingraft.measure.items import ItemStream
from lingraft.measure.probes.label_rules import RULES, draw_labelled, draw_symbols
from lingraft.measure.probes.ladder import NUM_ITEMS, SHOTS, Chain, Query, check_ladder, climb
from lingraft.measure.probes.probe import ProbeContext, ProbeResult, probe

__all__ = ["arbitrary_labels"]


def _chain(stream: ItemStream, index: int, shots: tuple[int, ...]) -> Chain:
    """Return inputs of two kinds with two symbols; rules and the kind that is asked for go in turn."""
    rule, kind = index % len(RULES), index // len(RULES) % 2
    symbols = draw_symbols(stream)
    inputs, asked = draw_labelled(stream, rule, shots[-1], kind)
    query = Query(asked, symbols[kind], symbols)
    return Chain(tuple((one, symbols[of]) for one, of in inputs), dict.fromkeys((0, *shots), query))


@probe("arbitrary_labels", reference="arXiv 2303.03846", light=False, text=True, check=check_ladder)
def arbitrary_labels(
    context: ProbeContext, *, num_items: int = NUM_ITEMS, shots: int | Sequence[int] = SHOTS, control: bool = True
) -> ProbeResult:
    """Return how well inputs are sorted into two kinds that are named by random symbols.

    The rules are even or odd, below or above 50, vowel or consonant first; both kinds are shown equally often, and
    chance is 1/2. Scores: :func:`lingraft.measure.probes.ladder.climb`, whose area and gain are of ``choice_accuracy``.

    Raises:
        MeasurementError: there is no item, or a number of demonstrations that is none.
    """
    return climb(
        context,
        _chain,
        key="arbitrary_labels/1",
        num_items=num_items,
        shots=shots,
        score="choice_accuracy",
        control=control,
    )
