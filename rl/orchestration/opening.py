"""What an orchestrator takes from a rollout file that it has read, and what that must say of itself. Pure."""

from dataclasses import fields

from protocol.errors import Code, NodeError
from rl.orchestration.rows import GroupFacts
from rl.rollouts.record import Group, Provenance


def facts_of(group: Group) -> GroupFacts:
    """What the orchestrator needs to know of a group."""
    versions = [version for each in group.rollouts for version in each.versions[each.sampled].tolist()]
    return GroupFacts(
        group.position,
        min(versions, default=group.version),
        max(versions, default=group.version),
        tuple(float(rollout.reward) for rollout in group.rollouts),
        len(versions),
    )


def check_provenance(provenance: Provenance, expected: Provenance, worker: str) -> None:
    """Hold what a file says of itself against its lease.

    Raises:
        NodeError: ``E-RL-070``.
    """
    for each in fields(Provenance):
        said, due = getattr(provenance, each.name), getattr(expected, each.name)
        if said != due:
            name = each.name.replace("_", " ")
            raise NodeError(
                Code.RL_PROVENANCE,
                f"The file says {name} {_short(said)}; the lease is for {_short(due)}.",
                peer=worker,
            )


def _short(value: object) -> str:
    return (value.hex()[:16] if isinstance(value, bytes) else str(value))[:64]
