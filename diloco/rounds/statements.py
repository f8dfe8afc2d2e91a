"""What members of a run say to one another about a round.

Each class is a *statement*: its sender signs it without naming a recipient, so that it can be shown to others as
evidence. Statements are fresh by their own (epoch, round, attempt), never by a clock.
"""

from protocol.messages import field, message, part

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
class Rate:
    """How fast another member's bytes came to the sender.

    Attributes:
        peer: The other member.
        rate: Bytes per second; 0 where the way to it leads over a relay.
    """

    peer: str = field(1, max_bytes=64)
    rate: int = field(2)


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
        late: Members without a seat whose Ready this value does not list; they stay for one more round.
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


@message("round.start", version=1, max_bytes="256 KiB", rate="20/s", audience="member")
class Start:
    """The start record, signed with the operator's key: it counts as the certificate of round -1.

    Attributes:
        value: Encoded ``Value`` of round -1.
    """

    value: bytes = field(1, max_bytes=262144)


@message("run.order", version=1, max_bytes="2 KiB", rate="10/s", audience="member")
class Order:
    """The operator's will about a run; it acts only by being named in a value, from the next round on (rule 11).

    Attributes:
        number: Orders are numbered; one below the highest taken up is void.
        kind: ``ban``, ``unban``, ``kick``, ``seat`` or ``unseat`` a peer; ``pause``, ``resume`` or ``finish`` the run;
            ``parameter`` changes one.
        peer: Whom it is about; empty where it is about the run.
        reason: In plain words.
        name: For ``parameter``: which one.
        value: For ``parameter``: its new value as text; empty for that of the genesis. For ``revoke``, which only the
            root key may order: the number up to which delegations are revoked.
        delegation: The sender's delegation (envelope bytes); empty where the root key signs.
    """

    number: int = field(1)
    kind: str = field(2, max_bytes=32)
    peer: str = field(3, default="", max_bytes=64)
    reason: str = field(4, default="", max_bytes=400)
    name: str = field(5, default="", max_bytes=64)
    value: str = field(6, default="", max_bytes=64)
    delegation: bytes = field(7, default=b"", max_bytes=1024)


@message("round.reset", version=1, max_bytes="2 MiB", rate="20/s", audience="member")
class Reset:
    """The operator begins a new epoch where a quorum is lost for good (rule 15).

    Attributes:
        value: Encoded ``Value`` of the new epoch, of the round of the last value that stands, which it names.
        reason: In plain words.
        askers: The ``AskReset`` of those who asked (envelope bytes), ordered by sender.
        last: Encoded value that the reset names as the last one where it was voted for but never certified.
        delegation: The sender's delegation (envelope bytes); empty where the root key signs.
    """

    value: bytes = field(1, max_bytes=262144)
    reason: str = field(2, default="", max_bytes=400)
    askers: tuple[bytes, ...] = field(3, default=(), max_items=64, max_bytes=2048)
    last: bytes = field(4, default=b"", max_bytes=1048576)
    delegation: bytes = field(5, default=b"", max_bytes=1024)


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
