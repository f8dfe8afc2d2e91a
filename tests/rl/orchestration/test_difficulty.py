"""Difficulty: the range of rewards decides."""

from typing import Any

import pytest

from rl.config import rules_of
from rl.orchestration.difficulty import Difficulty
from tests.diloco.small_run import small_sections


def test_rewards_that_are_alike_but_for_rounding_teach_nothing() -> None:
    rewards = [0.1 + 0.2, 0.3, 0.3, 0.3]
    mean = sum(rewards) / 4
    assert any(reward != mean for reward in rewards), (
        "a comparison of advantages with zero would train on them"
    )
    assert Difficulty().refuses(rewards) == "range"
    assert Difficulty().refuses([0.3, 0.3, 0.3, 0.302]) == ""


def test_bounds_of_the_mean_leave_out_what_is_too_hard_or_too_easy() -> None:
    bounds = Difficulty(lowest_mean=0.2, highest_mean=0.8)
    assert bounds.refuses([0, 0, 0, 0.5]) == "too-hard"
    assert bounds.refuses([0, 0, 0, 0.8]) == ""
    assert bounds.refuses([1, 1, 1, 0.2]) == ""
    assert bounds.refuses([1, 1, 1, 0.5]) == "too-easy"


def test_a_range_of_zero_is_no_bound() -> None:
    with pytest.raises(ValueError, match="above zero"):
        Difficulty(least_range=0.0)


def test_a_run_says_what_is_worth_training_on() -> None:
    rl: dict[str, Any] = {"environment": "reverse-text", "highest_mean": 0.9, "least_range": 0.5}
    assert rules_of(small_sections(rl=rl)).difficulty == Difficulty(0.5, highest_mean=0.9)
