"""Advantages and length rewards against published values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.training.advantages import advantages, informative, length_reward

REWARDS = st.lists(st.floats(-100, 100), min_size=2, max_size=16)


@pytest.mark.failure_mode(40)
@pytest.mark.parametrize(
    ("rewards", "wanted"),
    [
        ([1, 0, 0, 0], [1.5, -0.5, -0.5, -0.5]),
        ([1, 1, 0, 0], [0.866025, 0.866025, -0.866025, -0.866025]),
    ],
)
def test_advantages_are_the_published_ones(rewards: list[float], wanted: list[float]) -> None:
    np.testing.assert_allclose(advantages(rewards), wanted, atol=1e-6)


@pytest.mark.failure_mode(40)
@given(REWARDS)
def test_the_advantages_of_a_group_sum_to_zero_and_keep_its_order(rewards: list[float]) -> None:
    for kind in ("standardised", "centred"):
        given_ = advantages(rewards, kind)  # type: ignore[arg-type]
        assert abs(given_.sum()) < 1e-6
        order = np.argsort(rewards, kind="stable")
        assert (np.diff(given_[order]) >= -1e-9).all()


@given(REWARDS, st.floats(-50, 50), st.floats(0.1, 10))
def test_what_is_added_to_all_rewards_changes_nothing_nor_does_their_scale_when_standardised(
    rewards: list[float], shift: float, scale: float
) -> None:
    moved = [reward * scale + shift for reward in rewards]
    if max(rewards) - min(rewards) > 1e-2:
        np.testing.assert_allclose(advantages(moved), advantages(rewards), atol=1e-6)
        np.testing.assert_allclose(
            advantages(moved, "centred"), scale * advantages(rewards, "centred"), atol=1e-6
        )


def test_a_group_whose_rewards_differ_by_rounding_only_teaches_nothing() -> None:
    thirds = [1 / 3, 1 - 2 / 3, 0.1 + 0.7 / 3]
    assert len(set(thirds)) > 1, "these are not equal as floats"
    assert not informative(thirds) and not advantages(thirds).any()
    assert informative([0.0, 0.0, 1e-3]) and advantages([0.0, 0.0, 1e-3]).any()
    assert not informative([1.0]) and not advantages([1.0]).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        advantages([0.0, value])


def test_a_length_reward_costs_each_token_of_distance() -> None:
    assert length_reward(1.0, 3000, 2000) == pytest.approx(0.7)
    assert length_reward(1.0, 1000, 2000) == pytest.approx(0.7)
    assert length_reward(1.0, 2000, 2000) == 1.0
