"""The part of the view that is about reinforcement learning: versions, rollouts, what trainers make of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Version:
    """A checkpoint or a policy version, and who has how much of it."""

    key: str
    kind: str
    version: int
    digest: str = ""
    size: int = 0
    holders: Mapping[str, float] = field(default_factory=dict)
    at: float = 0.0


@dataclass(frozen=True)
class Judged:
    """One verdict on rollouts."""

    worker: str
    file: str
    outcome: str
    code: str
    sentence: str
    validator: str
    rollouts: int
    reward: float | None
    solved: float | None
    staleness: int
    at: float


@dataclass(frozen=True)
class Rollouts:
    """Sums over all verdicts."""

    accepted: int = 0
    refused: int = 0
    undecided: int = 0
    rewarded: int = 0
    reward_sum: float = 0.0
    solved_sum: float = 0.0
    as_of: float = 0.0


@dataclass(frozen=True)
class Learning:
    """How one trainer's rollouts stand, by its own word.

    Attributes:
        newest: The policy version it published last; -1 for none.
        workers: How many rollout workers it has heard of lately.
        working: Positions that are leased out.
        judging: Positions in files without a verdict.
        ready: Positions that are accepted and not trained on yet.
        free: Wanted positions that nobody has.
        validators: Whose verdicts it counts.
        distrusted: Whose it does not any more.
        waiting: What it waits for, in a sentence; empty while it trains.
        reward: Mean reward of the groups of its last step; None while unknown.
        solved: Share of their rollouts that are solved; None while unknown.
        staleness: By how many versions the groups of its last step were behind, and how many groups each.
        round: The round of its last step; -1 for none.
    """

    peer: str
    newest: int = -1
    workers: int = 0
    working: int = 0
    judging: int = 0
    ready: int = 0
    free: int = 0
    validators: tuple[str, ...] = ()
    distrusted: tuple[str, ...] = ()
    waiting: str = ""
    reward: float | None = None
    solved: float | None = None
    staleness: Mapping[str, int] = field(default_factory=dict)
    round: int = -1
    as_of: float = 0.0
