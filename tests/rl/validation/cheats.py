"""What a worker may try, from honest work or instead of it; each gives the groups of a file."""

from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from dataclasses import replace

import numpy as np
import torch
from blake3 import blake3

from protocol.errors import Code
from rl.rollouts.record import Group, Int32s, Rollout
from rl.validation.terms import Lease
from tests.rl.validation.world import BEN, Drawing, TorchPolicy, World, edited, own_seed

Groups = tuple[Group, ...]
Cheat = Callable[[World, Lease], Groups]


def said_to_be(groups: Groups, lease: Lease, world: World) -> Groups:
    """Rollouts of one version said to be of another, with everything that is cheap to forge made to fit."""

    def said(rollout: Rollout) -> Rollout:
        versions = np.where(rollout.sampled, lease.version, -1).astype(np.int32)
        return replace(rollout, versions=versions, proof_versions=(lease.version,) * len(rollout.proofs))

    return tuple(
        world.rewarded(
            replace(group, version=lease.version, rollouts=tuple(said(each) for each in group.rollouts))
        )
        for group in groups
    )


def recomputed(groups: Groups, version: int, world: World) -> Groups:
    """With the log-probabilities and proofs that a version gives to the tokens."""
    return tuple(
        replace(group, rollouts=tuple(world.recomputed(rollout, version) for rollout in group.rollouts))
        for group in groups
    )


def changed(tokens: Int32s, place: int) -> Int32s:
    """Tokens of which one is another."""
    tokens = tokens.copy()
    tokens[place] = (tokens[place] + 1) % 256 + 1
    return tokens


def cut(rollout: Rollout, end: int) -> Rollout:
    """A rollout without its last tokens, and without proofs that fit."""
    return replace(
        rollout,
        tokens=rollout.tokens[:end].copy(),
        sampled=rollout.sampled[:end],
        logprobs=rollout.logprobs[:end],
        versions=rollout.versions[:end],
    )


def with_proofs(groups: Groups, others: Groups) -> Groups:
    """The groups with the proofs of others, as far as those reach."""

    def taken(rollout: Rollout, other: Rollout) -> Rollout:
        count = min(len(rollout.proofs), len(other.proofs))
        return replace(rollout, proofs=(*other.proofs[:count], *rollout.proofs[count:]))

    return tuple(
        replace(group, rollouts=tuple(map(taken, group.rollouts, theirs.rollouts)))
        for group, theirs in zip(groups, others, strict=True)
    )


def other_weights(world: World, lease: Lease, noise: float = 0.01) -> Groups:
    """Weights with noise of a hundredth."""
    other = copy(world)
    torch.manual_seed(9)
    model = deepcopy(world.policies[lease.version].model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * weight.abs().mean() * noise)
    other.policies = {lease.version: TorchPolicy(model)}
    return other.draw(lease)


def older_policy(world: World, lease: Lease) -> Groups:
    """Four versions older than it says."""
    return world.draw(lease, Drawing(versions=(lease.version - 4,), claimed=(lease.version,)))


def older_policy_made_to_fit(world: World, lease: Lease) -> Groups:
    """Drawn by an older version, with the claimed one's log-probabilities and proofs."""
    drawn = world.draw(lease, Drawing(versions=(lease.version - 4,), claimed=(lease.version,)))
    return recomputed(drawn, lease.version, world)


def other_prompt(world: World, lease: Lease) -> Groups:
    """It read a hint that it does not show."""
    return world.draw(lease, Drawing(prompt="<t>abc</t> is easy: <t>cba</t>"))


def edited_token(world: World, lease: Lease) -> Groups:
    """One token is another."""

    def edit(rollout: Rollout) -> Rollout:
        return replace(rollout, tokens=changed(rollout.tokens, rollout.prompt + 1))

    return tuple(world.rewarded(group) for group in edited(world.draw(lease), edit))


def edited_token_made_to_fit(world: World, lease: Lease) -> Groups:
    """One token is another, with the log-probabilities and proofs of the text that comes of it."""
    return recomputed(edited_token(world, lease), lease.version, world)


def truncated(world: World, lease: Lease) -> Groups:
    """Cut after two tokens, and said to have ended there."""

    def shorten(rollout: Rollout) -> Rollout:
        short = cut(rollout, rollout.prompt + 2)
        return replace(world.recomputed(short, lease.version), finish="eos")

    return tuple(world.rewarded(group) for group in edited(world.draw(lease), shorten))


def truncated_and_closed(world: World, lease: Lease) -> Groups:
    """Cut after two tokens, of which the last was made an end token."""

    def shorten(rollout: Rollout) -> Rollout:
        short = cut(rollout, rollout.prompt + 2)
        short.tokens[-1] = world.renderer.end
        return replace(world.recomputed(short, lease.version), finish="eos")

    return tuple(world.rewarded(group) for group in edited(world.draw(lease), shorten))


def best_of_four(world: World, lease: Lease) -> Groups:
    """Each rollout drawn four times, and the best kept."""

    def seeds(number: int) -> Callable[[Lease, int, int], bytes]:
        def seed(lease: Lease, position: int, index: int) -> bytes:
            own = own_seed(lease, position, index)
            return blake3(own + bytes((number,))).digest() if number else own

        return seed

    tries = [world.draw(lease, Drawing(seed_of=seeds(number))) for number in range(4)]
    return tuple(
        replace(
            same[0],
            rollouts=tuple(
                max(each, key=lambda rollout: (rollout.reward, float(rollout.tokens.sum())))
                for each in zip(*(group.rollouts for group in same), strict=True)
            ),
        )
        for same in zip(*tries, strict=True)
    )


def forged_reward(world: World, lease: Lease) -> Groups:
    """One reward is 1, whatever the answer was."""
    return edited(world.draw(lease), lambda rollout: replace(rollout, reward=rollout.reward + 0.5))


def copied_rollouts(world: World, lease: Lease) -> Groups:
    """Another worker's rollouts of the same positions."""
    return world.draw(replace(lease, worker=BEN.peer_id))


def others_proofs(world: World, lease: Lease) -> Groups:
    """The proofs of a file of other positions."""
    elsewhere = tuple(position + 1000 for position in lease.positions)
    return with_proofs(world.draw(lease), world.draw(replace(lease, positions=elsewhere)))


CHEATS: Mapping[str, tuple[Cheat, tuple[Code, ...]]] = {
    "other weights": (other_weights, (Code.RL_PROOF, Code.RL_OTHER_LOGPROBS)),
    "older policy": (older_policy, (Code.RL_PROOF, Code.RL_OTHER_LOGPROBS)),
    "older policy made to fit": (older_policy_made_to_fit, (Code.RL_OTHER_TOKENS, Code.RL_IMPLAUSIBLE)),
    "other prompt": (other_prompt, (Code.RL_PROOF,)),
    "edited token": (edited_token, (Code.RL_IMPLAUSIBLE, Code.RL_PROOF, Code.RL_TERMINATION)),
    "edited token made to fit": (
        edited_token_made_to_fit,
        (Code.RL_IMPLAUSIBLE, Code.RL_OTHER_TOKENS, Code.RL_TERMINATION),
    ),
    "truncated": (truncated, (Code.RL_TERMINATION,)),
    "truncated and closed": (truncated_and_closed, (Code.RL_IMPLAUSIBLE, Code.RL_OTHER_TOKENS)),
    "best of four": (best_of_four, (Code.RL_IMPLAUSIBLE,)),
    "forged reward": (forged_reward, (Code.RL_REWARD,)),
    "copied rollouts": (copied_rollouts, (Code.RL_IMPLAUSIBLE,)),
    "proofs of others": (others_proofs, (Code.RL_PROOF,)),
}
"""Each with the codes by which it may be found: the first check that sees it is not always the same."""
