"""Half-lives and what is left of the start, by hand and by brute force."""

import pytest

from lingraft.training.horizon import half_life, shadow_decay, start_share


def test_half_life_is_where_an_old_value_weighs_half() -> None:
    assert half_life(0.5, 1) == 1
    assert half_life(0.92, 10) == pytest.approx(83.13, abs=0.01)
    assert 0.92 ** (half_life(0.92, 10) / 10) == pytest.approx(0.5)


def test_the_decay_grows_to_its_limit() -> None:
    assert [shadow_decay(n, 0.999, warmup=True) for n in (1, 2, 90)] == [2 / 11, 3 / 12, 0.91]
    assert shadow_decay(1, 0.1, warmup=True) == 0.1
    assert shadow_decay(10_000, 0.999, warmup=True) == 0.999
    assert shadow_decay(1, 0.999, warmup=False) == 0.999


@pytest.mark.parametrize(("steps", "share"), [(0, 1), (1, 1), (2, 0.5), (3, 0.5), (9, 0.5**4)])
def test_what_is_left_of_the_start(steps, share) -> None:
    assert start_share(steps, decay=0.5, every=2) == share


@pytest.mark.parametrize("decay", [0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("steps", [0, 1, 5, 80, 500])
def test_with_warm_up_it_is_the_product_of_all_decays(steps, decay) -> None:
    product = 1.0
    for update in range(1, steps // 2 + 1):
        product *= shadow_decay(update, decay, warmup=True)
    assert start_share(steps, decay=decay, every=2, warmup=True) == pytest.approx(product, rel=1e-9)
