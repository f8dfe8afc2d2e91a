"""Are a worker's lengths and rewards those of everybody else's? A doubt, never a fault: it brings audits.

Group means are compared, since rollouts of one task are alike, and only among groups of one policy version, since the
policy changes. Each of a worker's groups has a rank among the others'; ranks of honest work are uniform.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from protocol.errors import Code
from protocol.units import PeerId
from rl.rollouts.record import Group
from rl.validation.verdict import Finding

_VERSIONS = 32  # remembered
_GROUPS = 1024  # of one worker and version
_FEWEST = 8  # groups on each side of a version
_ENOUGH = 16  # of the worker's groups
_DEVIATIONS = 6.0  # of a normal distribution: one honest worker in a billion


class Tally:
    """Mean length and mean reward of the groups of the last versions. Used by one task at a time."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, dict[PeerId, list[tuple[float, float]]]] = OrderedDict()

    def add(self, worker: PeerId, groups: Sequence[Group]) -> None:
        """Counts a file's groups."""
        for group in groups:
            if not group.rollouts:
                continue
            mine = self._held.setdefault(group.version, {}).setdefault(worker, [])
            lengths = [float(rollout.sampled.sum()) for rollout in group.rollouts]
            rewards = [rollout.reward for rollout in group.rollouts]
            if len(mine) < _GROUPS:
                mine.append((sum(lengths) / len(lengths), sum(rewards) / len(rewards)))
        while len(self._held) > _VERSIONS:
            self._held.popitem(last=False)

    def doubts(self, worker: PeerId) -> list[Finding]:
        """What is unusual about a worker's groups."""
        found = []
        for column, name, code in ((0, "length", Code.RL_LENGTH), (1, "reward", Code.RL_REWARD)):
            deviation, count = _deviation(self._held, worker, column)
            if count >= _ENOUGH and abs(deviation) > _DEVIATIONS:
                than = "above" if deviation > 0 else "below"
                sentence = (
                    f"The mean {name} of its {count} groups lies {abs(deviation):.1f} standard deviations "
                    f"{than} that of others."
                )
                found.append(Finding(code, sentence, evidence={"deviations": deviation, "groups": count}))
        return found


def _deviation(
    held: Mapping[int, Mapping[PeerId, Sequence[tuple[float, float]]]], worker: PeerId, column: int
) -> tuple[float, int]:
    """By how many standard deviations a worker's ranks are off, over all versions; and of how many groups."""
    weighted, weight, count = 0.0, 0.0, 0
    for of_version in held.values():
        mine = np.array([group[column] for group in of_version.get(worker, ())])
        others = np.sort(
            [group[column] for peer, groups in of_version.items() if peer != worker for group in groups]
        )
        if len(mine) < _FEWEST or len(others) < _FEWEST:
            continue
        below = np.searchsorted(others, mine, "left") + np.searchsorted(others, mine, "right")
        off = float((below / (2 * len(others))).mean()) - 0.5
        inverse = 12 / (1 / len(mine) + 1 / len(others))  # of the variance
        weighted, weight, count = weighted + off * inverse, weight + inverse, count + len(mine)
    return (weighted / math.sqrt(weight), count) if weight else (0.0, 0)
