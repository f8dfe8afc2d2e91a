"""What follows from the sections by which a genesis describes a run of reinforcement learning.

`diloco` carries these sections in the genesis without knowing what they mean.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from diloco.config import RunSections, Section
from protocol.errors import Code, NodeError
from protocol.units import Digest, PeerId, RunId
from rl.environments.play import Room
from rl.environments.transcript import Renderer
from rl.orchestration.difficulty import Difficulty
from rl.orchestration.rules import Rules
from rl.sampling.settings import Sampling
from rl.section import RlSection
from rl.training.settings import ObjectiveSection
from rl.validation.draw import Shares
from rl.validation.terms import Terms

S = TypeVar("S", bound=Section)


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
        temperature=section.temperature,
        top_p=section.top_p,
        top_k=section.top_k,
        max_tokens=section.max_tokens,
        stop=section.stop,
        eos=(renderer.end,),
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
    return Shares(established=section.audited, twice=section.twice, planted=section.planted)


def validators_of(section: RlSection) -> frozenset[PeerId]:
    """The peers that are believed as validators."""
    return frozenset(PeerId(peer) for peer in section.validators)


def kind_of(section: RlSection) -> Literal["float32", "bfloat16"]:
    """What engines and validators compute in."""
    return "float32" if section.weights == "fp32" else "bfloat16"
