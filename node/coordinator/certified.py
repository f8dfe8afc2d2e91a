"""What the coordinator learns from a certified value."""

from diloco.rounds.certificate import Certified
from node.coordinator.facts import Contribution, Decided


def decided(certified: Certified, seen_at: float, voters: tuple[str, ...] = ()) -> Decided:
    """The fact of a certified value, which the caller has verified.

    Args:
        certified: The value with its certificate.
        seen_at: Unix seconds.
        voters: Who signed its certificate.
    """
    value = certified.value
    chunks = value.chunks
    roster = tuple(
        Contribution(
            peer=entry.peer,
            weight=entry.weight,
            tokens=entry.tokens,
            samples=entry.samples,
            clip=entry.clip,
            included=sum(_has(chunk.included, place) for chunk in chunks) / len(chunks) if chunks else 0.0,
        )
        for place, entry in enumerate(value.roster)
    )
    return Decided(
        seen_at=seen_at,
        epoch=value.epoch,
        round=value.round,
        attempt=certified.attempt,
        digest=certified.digest.hex(),
        previous=value.previous.hex(),
        base=value.base.hex(),
        roster=roster,
        electorate=tuple(elector.peer for elector in value.electorate),
        members=value.members,
        ghosts=tuple(ghost.peer for ghost in value.ghosts),
        left=value.left,
        late=value.late,
        banned=value.banned,
        failed_leaders=value.failed_leaders,
        voters=voters,
        orders=tuple(taken.number for taken in value.orders),
        order_number=value.order_number,
        tokens=value.tokens,
        partial_tokens=value.partial_tokens,
        parameters={parameter.name: parameter.value for parameter in value.parameters},
        paused=value.paused,
        finished=value.finished,
        begins=value.begins,
        bytes=len(certified.data) + sum(map(len, certified.votes)) + len(certified.start),
    )


def _has(bits: bytes, place: int) -> bool:
    return place // 8 < len(bits) and bool(bits[place // 8] >> (place % 8) & 1)
