"""Difficulty: which groups are worth a gradient, by the range of their rewards.

A group whose rewards are all alike teaches nothing: its advantages are zero, or, once a mean has been rounded,
something near zero with a wrong sign. So the rewards are looked at, never the advantages (docs/rl.md, orchestration).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

SOLVED = 1.0
"""A rollout with at least this reward has solved its task."""


def solved(rewards: Sequence[float]) -> float:
    """The share of some rollouts that solved their task."""
    return sum(reward >= SOLVED for reward in rewards) / len(rewards)


@dataclass(frozen=True)
class Difficulty:
    """Bounds of what is trained on.

    Attributes:
        least_range: Smallest difference between the best and the worst reward of a group.
        lowest_mean: Smallest mean reward; what is below is too hard.
        highest_mean: Largest mean reward; what is above is too easy.
    """

    least_range: float = 1e-3
    lowest_mean: float = -math.inf
    highest_mean: float = math.inf

    def __post_init__(self) -> None:
        if not self.least_range > 0:
            raise ValueError("least_range must be above zero: a group without a range has no gradient")

    def refuses(self, rewards: Sequence[float]) -> str:
        """Why a group is not trained on: ``range``, ``too-hard`` or ``too-easy``; empty for one that is.

        Args:
            rewards: Finite rewards of the whole group.
        """
        if not rewards or max(rewards) - min(rewards) < self.least_range:
            return "range"
        mean = math.fsum(rewards) / len(rewards)
        if mean < self.lowest_mean:
            return "too-hard"
        return "too-easy" if mean > self.highest_mean else ""
