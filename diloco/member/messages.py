"""What members say to one another beside statements about rounds."""

from diloco.rounds.values import Decided
from protocol.messages import field, message, request


@message("run.heartbeat", version=1, max_bytes="2 KiB", rate="20/s", audience="member")
class Heartbeat:
    """A sign of life, and what its sender is doing.

    Attributes:
        epoch: Epoch of the round.
        round: The round the sender is in; it has applied every earlier one.
        attempt: The attempt it is in.
        phase: Its phase, for people.
        step: Inner steps done in this round.
        steps: Inner steps of its lease.
        loss: Loss of its last step, nats per token.
        sentence: What it waits for, in plain words.
        answers: It answers one of the receiver's, and wants no answer.
    """

    epoch: int = field(1)
    round: int = field(2, kind="sint64")
    attempt: int = field(3, default=0)
    phase: str = field(4, default="", max_bytes=32)
    step: int = field(5, default=0)
    steps: int = field(6, default=0)
    loss: float = field(7, default=0.0)
    sentence: str = field(8, default="", max_bytes=400)
    answers: bool = field(9, default=False)


@message("run.goodbye", version=1, max_bytes="1 KiB", rate="2/s", audience="member")
class Goodbye:
    """The sender leaves now; nobody needs to wait for it.

    Attributes:
        reason: In plain words.
    """

    reason: str = field(1, default="", max_bytes=200)


@request(
    "run.ask-ledger", version=1, max_bytes="1 KiB", rate="10/s", timeout="30 s", replies=Decided, stream=True
)
class AskLedger:
    """Asks for certified values in order.

    Attributes:
        round: Those after this round are wanted; -2 for all, the start record included.
        limit: Most values in the answer.
        epoch: The epoch of that round's value.
        digest: Digest of that round's value, from one who has it: what follows may come as deltas then.
    """

    round: int = field(1, kind="sint64")
    limit: int = field(2, default=100)
    epoch: int = field(3, default=0)
    digest: bytes = field(4, default=b"", max_bytes=32)


@message("run.leaves", version=1, max_bytes="2 MiB", rate="1000/s", audience="member", plane="bulk")
class Leaves:
    """Digests of the chunks of an outer state in order, 32 bytes each; together they hash to the state's digest."""

    digests: bytes = field(1, max_bytes="1 MiB")


@request(
    "run.ask-leaves", version=1, max_bytes="1 KiB", rate="5/s", timeout="1 min", replies=Leaves, stream=True,
    plane="bulk",
)  # fmt: skip
class AskLeaves:
    """Asks a member whose outer state has this digest for the digests of its chunks."""

    round: int = field(1)
    base: bytes = field(2, max_bytes=32)


@message("run.state-piece", version=1, max_bytes="2 MiB", rate="5000/s", audience="member", plane="bulk")
class StatePiece:
    """Bytes of one chunk of an outer state: its parameters, then its momentum, little-endian fp32.

    Attributes:
        chunk: Index in the chunk grid.
        offset: Of the first byte in these.
        data: The bytes.
    """

    chunk: int = field(1)
    offset: int = field(2)
    data: bytes = field(3, max_bytes="1 MiB")


@request(
    "run.ask-state", version=1, max_bytes="512 KiB", rate="20/s", timeout="10 min", replies=StatePiece, stream=True,
    plane="bulk",
)  # fmt: skip
class AskState:
    """Asks a member whose outer state has this digest for some of its chunks, in this order."""

    round: int = field(1)
    base: bytes = field(2, max_bytes=32)
    chunks: tuple[int, ...] = field(3, max_items=65536)
