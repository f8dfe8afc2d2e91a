"""Values, which rounds decide, and their bytes: the digest that names one, and reading one that came from elsewhere."""

from functools import lru_cache

from blake3 import blake3

from protocol.messages import decode, encode, field, message, part

START_ROUND = -1
"""The round number of the start record, the value before the first round."""


@part
class Span:
    """A run of sample positions.

    Attributes:
        start: First position.
        count: How many positions, at least 1.
    """

    start: int = field(1)
    count: int = field(2)


@part
class Lease:
    """The sample positions that one member is to train on in one round: a run, and further ones after it.

    Attributes:
        start: First position.
        count: Length of the first run.
        more: Further runs, used in this order.
        size: Samples that the member is leased in a round now, where that differs from the genesis' number; else 0.
    """

    peer: str = field(1, max_bytes=64)
    start: int = field(2)
    count: int = field(3)
    more: tuple[Span, ...] = field(4, default=(), max_items=64)
    size: int = field(5, default=0)


@part
class Elector:
    """A voter of an electorate.

    Attributes:
        peer: The voter.
        absent: For how many values running no Ready of it was listed (0 or 1).
        beacon_commitment: What its nonce of the next round hashes to (32 bytes); empty where it has not committed.
        withheld: For how many values running it did not do its part for the beacon (0 or 1).
    """

    peer: str = field(1, max_bytes=64)
    absent: int = field(2, default=0)
    beacon_commitment: bytes = field(3, default=b"", max_bytes=32)
    withheld: int = field(4, default=0)


@part
class Ghost:
    """A newcomer that follows at weight 0, and for how many values it has done so."""

    peer: str = field(1, max_bytes=64)
    rounds: int = field(2)


@part
class Contributor:
    """One entry of a roster.

    Attributes:
        peer: Who contributes.
        weight: Its weight in the mean (tokens, after the lease and the cap).
        tokens: Tokens it reports to have trained on.
        samples: Sample positions it trained on, counted from the start of its lease.
        clip: Factor of its contribution in the mean, 0 to 1, representable in fp32.
    """

    peer: str = field(1, max_bytes=64)
    weight: int = field(2)
    tokens: int = field(3)
    samples: int = field(4)
    clip: float = field(5, default=1.0)


@part
class ReducedChunk:
    """One chunk of the agreed update.

    Attributes:
        digest: BLAKE3 of the encoded mean (32 bytes).
        included: Bit i set: contributor i of the roster is in this mean (little-endian bits).
    """

    digest: bytes = field(1, max_bytes=32)
    included: bytes = field(2, max_bytes=512)


@part
class Unproven:
    """A member that did not show what it had averaged, and for how many rounds it owns no chunk."""

    peer: str = field(1, max_bytes=64)
    rounds: int = field(2)


@part
class Boot:
    """The boot nonce under which a node without its vote record may vote again."""

    peer: str = field(1, max_bytes=64)
    nonce: bytes = field(2, max_bytes=16)


@part
class Taken:
    """An operator's order that a value takes up."""

    number: int = field(1)
    digest: bytes = field(2, max_bytes=32)


@part
class Reveal:
    """The nonce of one voter that went into a beacon."""

    peer: str = field(1, max_bytes=64)
    nonce: bytes = field(2, max_bytes=32)


@part
class Parameter:
    """A parameter of the run that the operator has changed, and its value as text."""

    name: str = field(1, max_bytes=64)
    value: str = field(2, max_bytes=64)


@message("round.value", version=1, max_bytes="1 MiB", rate="20/s", audience="member")
class Value:
    """What a round decides. Attempt and signatures are not in it: the chain links values.

    Attributes:
        epoch: Grows with every reset.
        round: The round it decides; -1 for the start record.
        previous: Digest of the value before (32 bytes; the genesis hash for the start record).
        base: State digest on which the round was trained (32 bytes).
        roster: Who contributed, ordered by peer id.
        chunks: One entry per chunk of the grid; empty when nobody contributed.
        leases: Who trains what in the next round.
        cursor: First sample position never leased.
        returned: Positions that were leased and of which nothing was certified.
        electorate: Voters of the next round.
        members: Members without a seat in the next round.
        ghosts: Newcomers that still only follow.
        tie_breaker: The voter with whom exactly half of the next electorate is a quorum.
        failed_leaders: Leaders of this round's earlier attempts.
        failed_last: Failed leaders of the value before.
        failed_before: Failed leaders of the value before that.
        boots: Boot nonces newly listed.
        left: Members whose leaving this value certifies.
        beacon: Public randomness of the next round (32 bytes).
        tokens: Tokens of all contributors.
        partial_tokens: Of these, how many are missing in some chunk.
        stopped: Nobody stays: the electorate is unchanged.
        orders: Operator orders taken up, by number.
        order_number: Highest number taken up so far in the run.
        banned: Peers that take no part from the next round on.
        paused: Nobody trains in the next round: it decides on orders only.
        finished: The operator ended the run with this round.
        reveals: Nonces that went into the beacon, ordered by peer id.
        parameters: Parameters that differ from the genesis in the next round, ordered by name.
        seated: Peers to which the operator gave a seat that their admission does not give.
        unseated: Peers that lost their seat, by the operator's order or by evidence.
        origin: Digest of the record that began this epoch; in such a record, of the one that began the epoch before.
        begins: This value is itself the beginning of an epoch: a start record or a reset.
        late: Members without a vote whose Ready this value does not list; they stay for one more round.
        unproven: Members that own no chunk in the next round.
        revoked: Delegations up to this number are revoked.
    """

    epoch: int = field(1)
    round: int = field(2, kind="sint64")
    previous: bytes = field(3, max_bytes=32)
    base: bytes = field(4, max_bytes=32)
    roster: tuple[Contributor, ...] = field(5, default=(), max_items=4096)
    chunks: tuple[ReducedChunk, ...] = field(6, default=(), max_items=65536)
    leases: tuple[Lease, ...] = field(7, default=(), max_items=4096)
    cursor: int = field(8, default=0)
    returned: tuple[Span, ...] = field(9, default=(), max_items=4096)
    electorate: tuple[Elector, ...] = field(10, default=(), max_items=64)
    members: tuple[str, ...] = field(11, default=(), max_items=4096)
    ghosts: tuple[Ghost, ...] = field(12, default=(), max_items=4096)
    tie_breaker: str = field(13, default="", max_bytes=64)
    failed_leaders: tuple[str, ...] = field(14, default=(), max_items=64)
    failed_last: tuple[str, ...] = field(15, default=(), max_items=64)
    boots: tuple[Boot, ...] = field(16, default=(), max_items=64)
    left: tuple[str, ...] = field(17, default=(), max_items=4096)
    beacon: bytes = field(18, default=b"", max_bytes=32)
    tokens: int = field(19, default=0)
    partial_tokens: int = field(20, default=0)
    stopped: bool = field(21, default=False)
    failed_before: tuple[str, ...] = field(22, default=(), max_items=64)
    orders: tuple[Taken, ...] = field(23, default=(), max_items=64)
    order_number: int = field(24, default=0)
    banned: tuple[str, ...] = field(25, default=(), max_items=4096)
    paused: bool = field(26, default=False)
    finished: bool = field(27, default=False)
    reveals: tuple[Reveal, ...] = field(28, default=(), max_items=64)
    parameters: tuple[Parameter, ...] = field(29, default=(), max_items=16)
    seated: tuple[str, ...] = field(30, default=(), max_items=4096)
    unseated: tuple[str, ...] = field(31, default=(), max_items=4096)
    origin: bytes = field(32, default=b"", max_bytes=32)
    begins: bool = field(33, default=False)
    late: tuple[str, ...] = field(41, default=(), max_items=4096)
    unproven: tuple[Unproven, ...] = field(42, default=(), max_items=64)
    revoked: int = field(43, default=0)


@message("round.decided", version=1, max_bytes="4 MiB", rate="50/s", audience="member")
class Decided:
    """A value with its certificate, or the start record.

    Attributes:
        value: Encoded value; where ``previous`` is given, an encoded ``round.value-delta`` to that one.
        attempt: The attempt whose votes these are.
        votes: Envelope bytes of the votes, ordered by sender. Empty for the start record.
        start: Envelope bytes of the start record or of the reset that this is, else empty.
        previous: Digest of the value before, empty where ``value`` is whole.
        digest: Digest of the value; it and the next two only beside ``previous``.
        epoch: Its epoch.
        round: Its round.
    """

    value: bytes = field(1, max_bytes=1048576)
    attempt: int = field(2, default=0)
    votes: tuple[bytes, ...] = field(3, default=(), max_items=64)
    start: bytes = field(4, default=b"", max_bytes=2162688)
    previous: bytes = field(5, default=b"", max_bytes=32)
    digest: bytes = field(6, default=b"", max_bytes=32)
    epoch: int = field(7, default=0)
    round: int = field(8, default=0, kind="sint64")


def value_digest(value: bytes) -> bytes:
    """The digest by which values are chained and voted on."""
    return blake3(b"intellect.value\0" + value).digest()


@lru_cache(maxsize=8)  # a round's value is read by each of its checks
def parse_value(data: bytes) -> Value:
    """Decode a value and insist that its bytes are canonical, so that one value has one digest.

    Raises:
        NodeError: It is no value.
        ValueError: It is not canonical, or nobody could decide the round after it.
    """
    value = decode(Value, data)
    if encode(value) != data:
        raise ValueError("the bytes of a value are not canonical")
    if not value.electorate:
        raise ValueError("the value names no voter")
    return value
