"""Bad files on purpose: made from an honest one, so that a validator that only says yes is found out. Pure.

Each kind passes every cheap check, so who accepts it did not run the model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rl.rollouts.record import Group, Rollout

Change = Callable[[Sequence[Group], np.random.Generator], tuple[Group, ...]]


def _with(groups: Sequence[Group], *changed: Rollout) -> tuple[Group, ...]:
    by_place = {(rollout.position, rollout.index): rollout for rollout in changed}
    return tuple(
        replace(
            group,
            rollouts=tuple(
                by_place.get((rollout.position, rollout.index), rollout) for rollout in group.rollouts
            ),
        )
        for group in groups
    )


def _draw(groups: Sequence[Group], chance: np.random.Generator) -> Rollout:
    rollouts = [rollout for group in groups for rollout in group.rollouts if any(map(len, rollout.proofs))]
    return rollouts[int(chance.integers(len(rollouts)))]


def noisy_proof(groups: Sequence[Group], chance: np.random.Generator) -> tuple[Group, ...]:
    """One proof has another polynomial, of the same modulus and length."""
    rollout = _draw(groups, chance)
    place = int(chance.choice([at for at, proof in enumerate(rollout.proofs) if proof]))
    proof = bytearray(rollout.proofs[place])
    for at in range(2, len(proof), 2):  # keeps every coefficient below the field's prime
        proof[at] = int(chance.integers(0xFF))
    proofs = (*rollout.proofs[:place], bytes(proof), *rollout.proofs[place + 1 :])
    return _with(groups, replace(rollout, proofs=proofs))


def exchanged_proofs(groups: Sequence[Group], chance: np.random.Generator) -> tuple[Group, ...]:
    """Two rollouts of different texts have each other's first proof; a noisy proof where there are no two."""
    first = _draw(groups, chance)
    for second in (rollout for group in groups for rollout in group.rollouts if rollout.proofs):
        ours, theirs = first.proofs[0], second.proofs[0]
        if ours != theirs and len(ours) == len(theirs):
            return _with(
                groups,
                replace(first, proofs=(theirs, *first.proofs[1:])),
                replace(second, proofs=(ours, *second.proofs[1:])),
            )
    return noisy_proof(groups, chance)


PLANTS: Mapping[str, Change] = {"noisy proof": noisy_proof, "exchanged proofs": exchanged_proofs}


def plant(groups: Sequence[Group], seed: bytes) -> tuple[Group, ...] | None:
    """A bad file's groups, from an honest one's; the kind and the place are the seed's.

    None where nothing is proved that could be spoiled.
    """
    if not any(proof for group in groups for rollout in group.rollouts for proof in rollout.proofs):
        return None
    chance = np.random.default_rng(list(seed))
    name = sorted(PLANTS)[int(chance.integers(len(PLANTS)))]
    return PLANTS[name](groups, chance)
