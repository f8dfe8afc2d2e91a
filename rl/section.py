"""`[rl]`: what a run file says of a run of reinforcement learning. Needs nothing that takes time to import."""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from diloco.config import PEER_ID_PATTERN, Duration, Section, Texts


class RlSection(Section):
    """`[rl]`: makes the run one of reinforcement learning (docs/rl.md). Its samples are tasks of an environment."""

    environment: Annotated[str, Field(pattern=r"^$|^[a-z0-9][a-z0-9-]{0,62}$")] = ""
    """Name of an installed environment (`intellect-node environments` lists them); empty: the run learns from text."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The environment's own settings."""
    group_size: Annotated[int, Field(ge=2, le=1024)] = 8
    """Rollouts of one task, which are compared with one another."""
    window: Annotated[int, Field(ge=0, le=16)] = 2
    """Rounds that a rollout's policy may be older than the round that trains on it."""
    temperature: Annotated[float, Field(gt=0.0, le=10.0)] = 1.0
    """Of sampling."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Tokens are drawn from the smallest set of the likeliest that has at least this probability."""
    top_k: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Tokens are drawn from so many of the likeliest; 0 draws from all."""
    max_tokens: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    """Most sampled tokens of a rollout, over all its turns."""
    turns: Annotated[int, Field(ge=1, le=1024)] = 1
    """Most turns of the model in a rollout."""
    stop: Texts = ()
    """A turn ends when its text contains one of these."""
    weights: Literal["fp32", "bf16"] = "fp32"
    """How published policy versions are stored, and with what workers compute."""
    groups_per_work: Annotated[int, Field(ge=1, le=64)] = 4
    """Most tasks of one lease of work."""
    newcomer_positions: Annotated[int, Field(ge=1, le=4096)] = 8
    """Most tasks that a new worker has unjudged."""
    trusted_after: Annotated[int, Field(ge=1, le=1_000_000)] = 16
    """Accepted tasks from which on a worker is not new, and not every file of it is audited."""
    work_within: Duration = timedelta(minutes=5)
    """Time for a lease of work, after which somebody else gets it."""
    verdict_within: Duration = timedelta(minutes=1)
    """Time for a verdict, after which another validator is asked as well."""
    patience: Duration = timedelta(minutes=5)
    """How long a trainer waits for a step's tasks before it gives what it has."""
    least_range: Annotated[float, Field(gt=0.0, le=1e9)] = 1e-3
    """Smallest difference between the best and the worst reward of a task that is trained on."""
    lowest_mean: float | None = None
    """Mean reward below which a task is left out as too hard."""
    highest_mean: float | None = None
    """Mean reward above which a task is left out as too easy."""
    audited: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of the files of established workers for which a validator runs the model."""
    twice: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05
    """Share of the files that two validators check without knowing it."""
    planted: Annotated[float, Field(ge=0.0, le=1.0)] = 0.02
    """For each file, how likely a bad one is planted beside it, to find validators that do not look."""
    validators: Annotated[
        tuple[Annotated[str, Field(pattern=PEER_ID_PATTERN)], ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
        Field(max_length=64),
    ] = ()
    """Peer ids of the nodes that the operator believes as validators."""

    @property
    def present(self) -> bool:
        """Whether the run is one of reinforcement learning."""
        return bool(self.environment)
