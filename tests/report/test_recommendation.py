"""The reasons that a verdict gives, on verdicts written by hand."""

from dataclasses import replace

from lingraft.measure.comparison import Arm, Quantity
from lingraft.measure.paired import Estimate
from lingraft.measure.verdict import Rules, Standing, Verdict
from lingraft.report.recommendation import recommend


def _estimate(value: float, half: float) -> Estimate:
    return Estimate(value, value - half, value + half, p=0.5, error=half / 2, items=40)


CHOSEN = Standing("kept", (0,), _estimate(0.3, 0.01), _estimate(0.02, 0.01), {}, None)
LOST = Standing(
    "lost",
    (0,),
    _estimate(0.4, 0.01),
    _estimate(0.01, 0.01),
    {
        Quantity("probe/copain", "exact_match"): _estimate(0.10, 0.12),
        Quantity("probe/sort", "exact_match"): _estimate(0.07, 0.05),
    },
    "icl",
)


def _reasons(*standings: Standing) -> str:
    verdict = Verdict(Rules(), "eu", "en", standings, "kept", "kept")
    return "\n".join(recommend(verdict, [Arm(one.arm, ()) for one in standings]).reasons)


def test_the_fall_that_is_certain_is_why_an_arm_is_not_to_be_shipped() -> None:
    """Copain fell by 0.10 [−0.02, 0.22], which may be chance; sort by 0.07 [0.02, 0.12], which is more than 0.05."""
    reason = next(line for line in _reasons(CHOSEN, LOST).splitlines() if line.startswith("“lost”"))
    assert "0.070 [0.020, 0.120]" in reason
    assert "0.100" not in reason


def test_an_arm_that_is_ahead_in_both_but_not_to_be_shipped_did_not_lose_by_a_tie() -> None:
    assert "“lost” is at least as good in both; it is not to be shipped for another reason." in _reasons(CHOSEN, LOST)
    ahead = replace(LOST, falls={}, excluded=None)
    assert "“lost” is at least as good in both; the rule goes by what is told apart." in _reasons(CHOSEN, ahead)
