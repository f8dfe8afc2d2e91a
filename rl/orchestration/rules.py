"""What the run fixes about its rollouts, and the bounds of one orchestrator."""

from dataclasses import dataclass, field
from datetime import timedelta

from rl.orchestration.difficulty import Difficulty


@dataclass(frozen=True)
class Rules:
    """Bounds and deadlines; counts are of positions (groups) where nothing else is said.

    Attributes:
        rounds: Rounds of the run; 0 for no end.
        lease_size: Positions that a trainer is leased per round where its lease does not say so.
        window: Most policy versions that a rollout's oldest token may be behind the round that trains on it.
        group_size: Rollouts of a position.
        groups_per_work: Most positions of one lease of work.
        open_works: Most unanswered leases of work of one worker.
        most_waiting: Positions given out or here and not consumed, from which on nothing is given out ahead; what the
            running round needs is given out all the same.
        bytes_per_group: Most bytes of a rollout file per position.
        newcomer_positions: Most unjudged positions of a new identity.
        newcomer_share: Share of all wanted positions that new identities may hold together, once there are others.
        trusted_after: Accepted positions from which on an identity is not new.
        tries: Failed attempts at one position after which it is given up.
        most_workers: Identities that are remembered.
        strikes: Strikes from which on a worker is banned.
        forgiven_after: Accepted files in a row that take one strike away.
        abandon_rate: Share of the last leases not answered from which on a worker is suspicious.
        doubted: Accepted files in a row after which a doubt about a worker is over.
        per_validator: Most files that one validator is asked for at a time.
        most_refused: Refused files that are kept for appeals, the newest.
        work_within: Time for a lease of work.
        verdict_within: Time for a verdict, after which another validator is asked as well.
        appeal_within: For how long a worker may appeal, and for how long another opinion is looked for.
        seen_within: A worker that has not asked for so long counts as gone from the pool.
        ask_again: How long a worker is told to wait before it asks again.
        difficulty: Which groups are worth a gradient.
    """

    rounds: int
    lease_size: int
    window: int = 2
    group_size: int = 8
    groups_per_work: int = 2
    open_works: int = 2
    most_waiting: int = 256
    bytes_per_group: int = 2**22
    newcomer_positions: int = 4
    newcomer_share: float = 0.25
    trusted_after: int = 16
    tries: int = 6
    most_workers: int = 4096
    strikes: int = 3
    forgiven_after: int = 64
    abandon_rate: float = 0.5
    doubted: int = 8
    per_validator: int = 8
    most_refused: int = 16
    work_within: timedelta = timedelta(minutes=5)
    verdict_within: timedelta = timedelta(minutes=1)
    appeal_within: timedelta = timedelta(minutes=5)
    seen_within: timedelta = timedelta(minutes=1)
    ask_again: timedelta = timedelta(seconds=2)
    difficulty: Difficulty = field(default_factory=Difficulty)

    def __post_init__(self) -> None:
        least = {
            "lease_size": 1, "window": 0, "group_size": 1, "groups_per_work": 1, "open_works": 1, "most_waiting": 0,
            "bytes_per_group": 1, "newcomer_positions": 1, "tries": 1, "most_workers": 1, "strikes": 1,
            "forgiven_after": 1, "per_validator": 1, "most_refused": 0, "trusted_after": 0, "rounds": 0,
        }  # fmt: skip
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise ValueError(f"{name} is {getattr(self, name)}, and at least {smallest}")
