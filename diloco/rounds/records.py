"""What the operator signs: the record that begins a run, orders, the record that begins a new epoch."""

from protocol.messages import field, message


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
            ``parameter`` changes one; ``checkpoint`` has members write one after the round whose value names the order;
            ``audit`` has voters check every chunk of the round before that.
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
        last: Encoded value that the reset goes on from, where it was voted for and nobody here saw it certified; then
            the reset names no base: it is what this value leads to.
        delegation: The sender's delegation (envelope bytes); empty where the root key signs.
    """

    value: bytes = field(1, max_bytes=262144)
    reason: str = field(2, default="", max_bytes=400)
    askers: tuple[bytes, ...] = field(3, default=(), max_items=64, max_bytes=2048)
    last: bytes = field(4, default=b"", max_bytes=1048576)
    delegation: bytes = field(5, default=b"", max_bytes=1024)
