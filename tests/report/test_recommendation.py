"""The reasons that a verdict gives, on verdicts written by hand."""

from dataclasses import replace

from lingraft.limits import Limits
from lingraft.measure.comparison import Arm, Level, Match, Quantity
from lingraft.measure.paired import Estimate
from lingraft.measure.verdict import Standing, Verdict, bits_of
from lingraft.report.recommendation import recommend, with_interval


def _estimate(value: float, half: float) -> Estimate:
    return Estimate(value, value - half, value + half, p=0.5, error=half / 2, items=40)


COPAIN, SORT = Quantity("probe/copain", "exact_match"), Quantity("probe/sort", "exact_match")
LEVELS = {bits_of("eu"): Level(1.8, 1.5), bits_of("en"): Level(1.0, 1.02)}
CHOSEN = Standing("kept", (0,), _estimate(0.3, 0.01), _estimate(0.02, 0.01), {}, LEVELS, None)
LOST = Standing(
    "lost",
    (0,),
    _estimate(0.4, 0.01),
    _estimate(0.01, 0.01),
    {COPAIN: _estimate(0.10, 0.12), SORT: _estimate(0.07, 0.05)},
    LEVELS | {COPAIN: Level(0.25, 0.15), SORT: Level(0.20, 0.13)},
    "icl",
)


def _reasons(*standings: Standing) -> str:
    verdict = Verdict(Limits(), "eu", "en", standings, "kept", "kept")
    return "\n".join(recommend(verdict, [Arm(one.arm, ()) for one in standings]).reasons)


def test_the_fall_that_is_certain_is_why_an_arm_is_not_to_be_shipped() -> None:
    """Copain fell by 0.10 [−0.02, 0.22], which may be chance; sort by 0.07 [0.02, 0.12], which is 35 % of 0.20."""
    reason = next(line for line in _reasons(CHOSEN, LOST).splitlines() if line.startswith("“lost”"))
    assert "0.070 [0.020, 0.120] from 0.200, and 30 % of that is allowed." in reason
    assert "0.100" not in reason


def test_an_arm_that_is_ahead_in_both_but_not_to_be_shipped_did_not_lose_by_a_tie() -> None:
    assert "“lost” is at least as good in both; it is not to be shipped for another reason." in _reasons(CHOSEN, LOST)
    ahead = replace(LOST, falls={}, excluded=None)
    assert "“lost” is at least as good in both; the rule goes by what is told apart." in _reasons(CHOSEN, ahead)


def test_levels_changes_and_what_they_say_have_one_direction() -> None:
    """Fewer bits per byte are better and more right answers are; a change that may be chance is called no change."""
    copain, copying = Quantity("probe/copain", "exact_match"), Quantity("probe/sort", "exact_match")
    nothing = Estimate(0.0, 0.0, 0.0, p=1.0, error=0.0, items=40)
    falls = {copain: replace(_estimate(-0.01, 0.02), items=400), copying: nothing}
    levels = LEVELS | {copain: Level(0.30, 0.31), copying: Level(0.5, 0.5)}
    told = _reasons(replace(CHOSEN, loss=_estimate(-0.04, 0.01), falls=falls, levels=levels)).splitlines()
    assert told[0] == (
        "Basque (eu): “kept” needs 1.500 bits for a byte of text, the base model 1.800 (−0.300 [−0.310, −0.290]): better."
    )
    assert told[1].endswith("(−0.040 [−0.050, −0.030]): better. +0.050 (5 %) would have been allowed.")
    assert told[2].endswith(
        "0.310, and 0.300 before training (+0.010 [−0.010, +0.030]): no change that these items show; one of 0.028 would show in 8 of 10 tries."
    )
    assert told[3].endswith("0.500, and 0.500 before training (no difference at all).")
    few = falls | {copain: replace(falls[copain], items=40)}
    assert "one of 0.150 would show" in _reasons(replace(CHOSEN, falls=few, levels=levels)), "6 of 40"


def _match(value: float, adjusted: float) -> Match:
    return Match(bits_of("eu"), "best", "kept", _estimate(value, 0.006), None, adjusted, adjusted, 0.009)


def test_a_tie_names_its_direction_and_the_family_of_its_p() -> None:
    standings = (CHOSEN, replace(CHOSEN, arm="best"), replace(CHOSEN, arm="third"))
    gains = (_match(0.004, 0.127), replace(_match(-0.003, 0.3), second="third"))
    verdict = Verdict(Limits(), "eu", "en", standings, "kept", "best", gains)
    told = "\n".join(recommend(verdict, [Arm(one.arm, ()) for one in standings]).reasons)
    assert (
        "Basque (eu): “kept” needs 0.004 [−0.002, 0.010] more bits per byte than “best”, not told apart (p 0.127 by "
        "Holm's rule). A difference of 0.009 would have been found"
    ) in told
    assert "“third” needs 0.003 [−0.003, 0.009] fewer bits per byte than “best”" in told


def test_a_number_that_is_not_nothing_is_not_written_as_nothing() -> None:
    assert with_interval(Estimate(0.412, 0.39, 0.4312, p=0.0, error=0.01, items=9)) == "0.412 [0.390, 0.431]"
    small = Estimate(0.00012, 0.00009, 0.00015, p=0.0, error=0.00001, items=9)
    assert with_interval(small, sign=True) == "+0.00012 [+0.00009, +0.00015]"
    assert with_interval(Estimate(0.0, -0.1, 0.1, p=1.0, error=0.05, items=9)) == "0.000 [−0.100, 0.100]"
