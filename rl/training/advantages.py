"""What a rollout was better by than its group. Pure: numbers in, numbers out."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

LEAST_RANGE = 1e-6
"""Rewards of a group that lie closer together than this say nothing, whatever rounding made of their differences."""

LENGTH_WEIGHT = 3e-4
"""Reward that a token too many or too few costs."""


def informative(rewards: Sequence[float], least: float = LEAST_RANGE) -> bool:
    """Whether a group teaches anything: the range of its rewards is at least ``least``."""
    return len(rewards) > 1 and max(rewards) - min(rewards) >= least


def advantages(
    rewards: Sequence[float], kind: Literal["standardised", "centred"] = "standardised"
) -> npt.NDArray[np.float64]:
    """Each rollout's reward against its group's mean.

    Args:
        rewards: Of all rollouts of one group, finite.
        kind: ``standardised`` divides by the group's standard deviation with one degree of freedom less (GRPO,
            Shao et al. 2024, section 4.1.2); ``centred`` does not (Liu et al. 2025, section 3.2).

    Returns:
        float64[rollouts], whose sum is 0; all 0 for a group that is not ``informative``.

    Raises:
        ValueError: A reward is not finite.
    """
    values = np.asarray(rewards, np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a reward is not finite")
    if not informative(rewards):
        return np.zeros_like(values)
    centred: npt.NDArray[np.float64] = values - values.mean()
    return centred if kind == "centred" else centred / values.std(ddof=1)


def length_reward(reward: float, length: int, target: int, weight: float = LENGTH_WEIGHT) -> float:
    """A reward less what the distance of a length from its target costs (INTELLECT-2, section 3.2.1).

    Args:
        reward: Of the task.
        length: Sampled tokens.
        target: Tokens asked for.
        weight: Cost of one token of distance.
    """
    return reward - weight * abs(target - length)
