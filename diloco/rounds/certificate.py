"""When a value is decided: votes of a quorum of its round's electorate for one value in one attempt (rule 6)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from diloco.rounds.electorate import is_quorum
from diloco.rounds.statements import Vote
from diloco.rounds.values import Lease, Value, parse_value, value_digest
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError


@dataclass(frozen=True)
class Certified:
    """A value with what proves it.

    Attributes:
        value: The value.
        data: Its bytes.
        digest: Its digest.
        attempt: The attempt whose votes these are.
        votes: Envelope bytes of the votes; empty for start record and resets, and for a value that only a reset names.
        start: Envelope bytes of the start record or of a reset, else empty.
        last: The value that a reset goes on from, encoded, where it was voted for and need not be certified.
    """

    value: Value
    data: bytes
    digest: bytes
    attempt: int = 0
    votes: tuple[bytes, ...] = ()
    start: bytes = b""
    last: bytes = b""

    @property
    def named(self) -> "Certified | None":
        """The value that this reset makes stand, if it names one that need not be certified."""
        return Certified(parse_value(self.last), self.last, value_digest(self.last)) if self.last else None

    @cached_property
    def leases(self) -> dict[str, Lease]:
        """The value's leases by peer."""
        return {lease.peer: lease for lease in self.value.leases}


def certify(
    tip: Value, tip_digest: bytes, data: bytes, attempt: int, votes: Iterable[Sealed[Vote]]
) -> Certified:
    """Check that votes certify a value that follows ``tip``.

    Raises:
        NodeError: ``RND_CHAIN`` when the value does not follow, ``RND_CERTIFICATE`` when the votes are not a quorum.
    """
    try:
        value = parse_value(data)
    except ValueError as error:
        raise NodeError(Code.RND_CHAIN, f"A certified value cannot be read: {error}.") from error
    digest = value_digest(data)
    if (value.epoch, value.round, value.previous) != (tip.epoch, tip.round + 1, tip_digest):
        raise NodeError(
            Code.RND_CHAIN, f"The value of round {value.round} does not follow round {tip.round} here."
        )
    held: dict[str, bytes] = {}
    for vote in votes:
        body = vote.message
        if (body.epoch, body.round, body.attempt, body.value) == (value.epoch, value.round, attempt, digest):
            held[vote.sender] = vote.raw
    if not is_quorum(held, tip.electorate, tip.tie_breaker):
        raise NodeError(
            Code.RND_CERTIFICATE,
            f"Round {value.round} has {len(held)} votes in attempt {attempt} "
            f"of an electorate of {len(tip.electorate)}: no quorum.",
        )
    voters = {elector.peer for elector in tip.electorate}
    kept = tuple(held[peer] for peer in sorted(held) if peer in voters)
    return Certified(value, data, digest, attempt, kept)
