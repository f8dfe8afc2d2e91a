"""What a run file and a genesis say of a reinforcement-learning run, and what follows from it.

`diloco` carries these sections in the genesis without knowing what they mean.
"""

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from diloco.config import PEER_ID_PATTERN, Duration, RunSections, Section, Texts
from protocol.errors import Code, NodeError
from protocol.units import Digest, PeerId, RunId
from rl.environments.play import Room
from rl.environments.transcript import Renderer
from rl.orchestration.difficulty import Difficulty
from rl.orchestration.rules import Rules
from rl.sampling.settings import Sampling
from rl.training.settings import ObjectiveSection
from rl.validation.draw import Shares
from rl.validation.terms import Terms

S = TypeVar("S", bound=Section)


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
    audited: Annotated[float, Field(ge=0.0, le=1.0)] = 0.125
    """Share of the files of established workers for which a validator runs the model."""
    twice: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05
    """Share of the files that two validators check without knowing it."""
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


def rl_of(sections: RunSections) -> RlSection:
    """The section of a genesis.

    Raises:
        NodeError: CFG_GENESIS_INVALID when it is not one.
    """
    return _read(RlSection, sections.rl)


def objective_of(sections: RunSections) -> ObjectiveSection:
    """The objective of a genesis.

    Raises:
        NodeError: CFG_GENESIS_INVALID when it is not one.
    """
    return _read(ObjectiveSection, sections.objective)


def _read(kind: type[S], held: Mapping[str, Any]) -> S:
    try:
        return kind.model_validate(held)
    except ValidationError as error:
        first = error.errors()[0]
        raise NodeError(
            Code.CFG_GENESIS_INVALID,
            f"The genesis' {'.'.join(map(str, first['loc']))} is not allowed: {first['msg']}.",
        ) from None


def sampling_of(section: RlSection, renderer: Renderer) -> Sampling:
    """How tokens are drawn."""
    return Sampling(
        temperature=section.temperature, max_tokens=section.max_tokens, stop=section.stop, eos=(renderer.end,)
    )


def room_of(section: RlSection, context: int) -> Room:
    """How far a rollout may go in a model with this context."""
    return Room(section.turns, section.max_tokens, context)


def terms_of(run: RunId, sections: RunSections, renderer: Renderer, version: str, tokenizer: Digest) -> Terms:
    """What rollout files are held against.

    Args:
        run: The run.
        sections: Those of its genesis.
        renderer: Of the run's tokenizer.
        version: Of the environment.
        tokenizer: Digest of the tokenizer.
    """
    section = rl_of(sections)
    return Terms(
        run=run,
        environment=section.environment,
        environment_version=version,
        tokenizer=tokenizer,
        sampling=sampling_of(section, renderer),
        vocab=sections.model.vocab,
        context=sections.model.context,
        group_size=section.group_size,
        turns=section.turns,
        window=section.window,
    )


def rules_of(sections: RunSections) -> Rules:
    """What orchestrators go by."""
    section = rl_of(sections)
    return Rules(
        rounds=sections.run.rounds,
        lease_size=sections.round.inner_steps * sections.inner.samples_per_step,
        window=section.window,
        group_size=section.group_size,
        groups_per_work=section.groups_per_work,
        newcomer_positions=section.newcomer_positions,
        trusted_after=section.trusted_after,
        work_within=section.work_within,
        verdict_within=section.verdict_within,
        difficulty=Difficulty(
            section.least_range,
            -math.inf if section.lowest_mean is None else section.lowest_mean,
            math.inf if section.highest_mean is None else section.highest_mean,
        ),
    )


def shares_of(section: RlSection) -> Shares:
    """How much is audited."""
    return Shares(established=section.audited, twice=section.twice)


def validators_of(section: RlSection) -> frozenset[PeerId]:
    """The peers that are believed as validators."""
    return frozenset(PeerId(peer) for peer in section.validators)
