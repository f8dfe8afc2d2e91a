"""What members of a run say to one another about a round.

Each class is a *statement*: its sender signs it without naming a recipient, so that it can be shown to others as
evidence. Statements are fresh by their own (epoch, round, attempt), never by a clock.
"""

from protocol.messages import field, message, part


@part
class Rate:
    """How fast another member's bytes came to the sender.

    Attributes:
        peer: The other member.
        rate: Bytes per second; 0 where the way to it leads over a relay.
    """

    peer: str = field(1, max_bytes=64)
    rate: int = field(2)


@message("round.ask-reset", version=1, max_bytes="1 KiB", rate="20/s", audience="member")
class AskReset:
    """The sender sees no quorum and asks the operator for a reset; it stays until that is decided (rule 15).

    Attributes:
        epoch: Epoch of the round.
        round: The round that nobody decides.
        attempt: The attempt that the sender is in.
        tip: Digest of the sender's last certified value (32 bytes).
        base: State digest of the sender (32 bytes).
        boot: Boot nonce of the sender's process (16 bytes).
        lost_record: The sender has no vote record; a reset that lists its nonce gives it its vote again.
        voted_attempt: One more than the highest attempt in which the sender voted in this round, 0 for none.
        voted_value: Digest of that value.
    """

    epoch: int = field(1)
    round: int = field(2)
    attempt: int = field(3)
    tip: bytes = field(4, max_bytes=32)
    base: bytes = field(5, max_bytes=32)
    boot: bytes = field(6, max_bytes=16)
    lost_record: bool = field(7, default=False)
    voted_attempt: int = field(8, default=0)
    voted_value: bytes = field(9, default=b"", max_bytes=32)


@message("round.ready", version=1, max_bytes="4 MiB", rate="50/s", audience="member")
class Ready:
    """A promise to ignore lower attempts, and the description of a frozen contribution.

    Attributes:
        epoch: Epoch of the round.
        round: The round.
        attempt: The attempt that is promised.
        base: State digest of the sender (32 bytes).
        tokens: Tokens trained on; 0 where there is no contribution.
        samples: Sample positions trained on, from the start of the lease.
        commitment: Merkle root over the encoded chunks (32 bytes), empty without a contribution.
        norms: Squared L2 norm per chunk of the decoded contribution.
        boot: Boot nonce of the sender's process (16 bytes).
        leaving: The sender asks to be left out of the next electorate.
        lost_record: The sender has no vote record: its Ready counts for no quorum.
        voted_attempt: One more than the highest attempt in which the sender voted in this round, 0 for none.
        voted_value: Encoded value of that vote.
        voted_close: The leader's signed Close for it (envelope bytes).
        admission: The sender's admission (envelope bytes), from those who are not in the electorate.
        orders: Operator orders that the sender holds and no value has taken up (envelope bytes).
        beacon_commitment: What the sender's nonce of the next round hashes to (32 bytes).
        reveal: The sender's nonce of this round (32 bytes), to which it committed in its Ready of the round before.
        started: When the sender's process started, Unix milliseconds, growing with each start of one data directory.
        rates: How fast others' contributions came here, ordered by peer.
        unshown: Owners that did not show this sender what they had averaged.
        convicted: Peers against whom the sender has verified evidence.
    """

    epoch: int = field(1)
    round: int = field(2)
    attempt: int = field(3)
    base: bytes = field(4, max_bytes=32)
    tokens: int = field(5, default=0)
    samples: int = field(6, default=0)
    commitment: bytes = field(7, default=b"", max_bytes=32)
    norms: tuple[float, ...] = field(8, default=(), max_items=65536)
    boot: bytes = field(9, default=b"", max_bytes=16)
    leaving: bool = field(10, default=False)
    lost_record: bool = field(11, default=False)
    voted_attempt: int = field(12, default=0)
    voted_value: bytes = field(13, default=b"", max_bytes=1048576)
    voted_close: bytes = field(14, default=b"", max_bytes=1050624)
    admission: bytes = field(15, default=b"", max_bytes=8192)
    orders: tuple[bytes, ...] = field(16, default=(), max_items=16, max_bytes=2048)
    beacon_commitment: bytes = field(17, default=b"", max_bytes=32)
    reveal: bytes = field(18, default=b"", max_bytes=32)
    started: int = field(19, default=0)
    rates: tuple[Rate, ...] = field(30, default=(), max_items=64)
    unshown: tuple[str, ...] = field(31, default=(), max_items=64, max_bytes=64)
    convicted: tuple[str, ...] = field(32, default=(), max_items=64, max_bytes=64)


@message("round.proposal", version=1, max_bytes="4 MiB", rate="20/s", audience="member")
class Proposal:
    """The Readys on which the leader of an attempt builds roster, weights and partition, or which force a value on it.

    Attributes:
        readys: Envelope bytes of the Readys, ordered by sender.
        evidence: Encoded ``Evidence`` against peers that a free proposal strikes off.
    """

    epoch: int = field(1)
    round: int = field(2)
    attempt: int = field(3)
    readys: tuple[bytes, ...] = field(4, max_items=4096)
    evidence: tuple[bytes, ...] = field(5, default=(), max_items=4, max_bytes=1048576)


@part
class Move:
    """A chunk and who owns it from now on."""

    chunk: int = field(1)
    owner: str = field(2, max_bytes=64)


@message("round.reassign", version=1, max_bytes="4 MiB", rate="20/s", audience="member")
class Reassign:
    """The leader moves unfinished chunks of lost owners to others.

    Attributes:
        ownership: Number of the reassignment within the attempt, from 1.
        moves: All moves of the attempt so far.
    """

    epoch: int = field(1)
    round: int = field(2)
    attempt: int = field(3)
    ownership: int = field(4)
    moves: tuple[Move, ...] = field(5, default=(), max_items=65536)


@message("round.close", version=1, max_bytes="4 MiB", rate="20/s", audience="member")
class Close:
    """The leader has every byte and asks for votes on the value that its proposal leads to.

    Attributes:
        value: Encoded value.
    """

    epoch: int = field(1)
    round: int = field(2)
    attempt: int = field(3)
    value: bytes = field(4, max_bytes=1048576)


@message("round.vote", version=1, max_bytes="1 KiB", rate="50/s", audience="member")
class Vote:
    """The sender holds every byte of a value and votes for it in one attempt. It promises that attempt too.

    Attributes:
        value: Digest of the value.
        boot: Boot nonce of the sender's process: a later Ready of that process has to report this vote.
    """

    epoch: int = field(1)
    round: int = field(2)
    attempt: int = field(3)
    value: bytes = field(4, max_bytes=32)
    boot: bytes = field(5, default=b"", max_bytes=16)


@message("round.pass", version=1, max_bytes="1 KiB", rate="50/s", audience="member")
class Pass:
    """The leader of an attempt gives it up.

    Attributes:
        reason: In plain words.
        lost: Digest of the voted value whose bytes cannot be had, where that is why.
    """

    epoch: int = field(1)
    round: int = field(2)
    attempt: int = field(3)
    reason: str = field(4, default="", max_bytes=200)
    lost: bytes = field(5, default=b"", max_bytes=32)


@message("round.evidence", version=1, max_bytes="4 MiB", rate="20/s", audience="member")
class Evidence:
    """Statements that one honest member cannot have signed; whoever holds them can verify it (rule 16).

    Attributes:
        kind: What they show.
        accused: Who signed them.
        statements: Envelope bytes.
    """

    kind: str = field(1, max_bytes=32)
    accused: str = field(2, max_bytes=64)
    statements: tuple[bytes, ...] = field(3, max_items=4, max_bytes=2097152)
