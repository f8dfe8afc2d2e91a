"""Rollouts of the right form, made from a seed; no model has drawn them."""

from dataclasses import replace
from typing import Any

import numpy as np

from protocol.identity import Identity
from protocol.units import Digest, RunId
from rl.rollouts.record import SCHEMA, Group, Provenance, Rollout
from rl.sampling.settings import Sampling

ANA, BEN, MAX, TOM = (Identity.ephemeral(letter * 32) for letter in (b"a", b"b", b"m", b"t"))


def provenance(**changes: Any) -> Provenance:
    made = Provenance(
        schema=SCHEMA,
        run=RunId("ab" * 32),
        worker=ANA.peer_id,
        trainer=TOM.peer_id,
        counter=0,
        version=3,
        weights=Digest(b"w" * 32),
        beacon=Digest(b"b" * 32),
        environment="reverse-text",
        environment_version="1",
        tokenizer=Digest(b"t" * 32),
        sampling=Sampling(temperature=0.9, max_tokens=64, stop=("</a>",), eos=(0,)),
    )
    return replace(made, **changes)


def rollout(position: int, index: int, *, prompt: int = 5, sampled: int = 40, seed: int = 0) -> Rollout:
    chance = np.random.default_rng((position, index, seed))
    mask = np.arange(prompt + sampled) >= prompt
    return Rollout(
        position=position,
        index=index,
        tokens=chance.integers(0, 256, len(mask), dtype=np.int32),
        sampled=mask,
        logprobs=np.where(mask, -chance.random(len(mask)), 0).astype(np.float32),
        versions=np.where(mask, 3, -1).astype(np.int32),
        proofs=tuple(chance.bytes(258) for _ in range(-(-sampled // 32))),
        proof_versions=(3,) * -(-sampled // 32),
        reward=float(chance.random()),
        finish="length",
    )


def groups(*positions: int, size: int = 2, **shape: int) -> tuple[Group, ...]:
    return tuple(
        Group(position, 3, tuple(rollout(position, index, **shape) for index in range(size)))
        for position in positions
    )


def plain(held: tuple[Group, ...]) -> list[Any]:
    """Groups as lists, which can be compared."""
    return [(group.position, group.version, *(_row(each) for each in group.rollouts)) for group in held]


def _row(each: Rollout) -> tuple[Any, ...]:
    arrays = (each.tokens, each.sampled, each.logprobs, each.versions)
    rest = (each.position, each.index, each.proofs, each.proof_versions, each.reward, each.finish)
    return (*((array.dtype.str, array.tobytes()) for array in arrays), *rest)
