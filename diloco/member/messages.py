"""What members say to one another beside statements about rounds."""

from diloco.rounds.statements import Decided
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
    """

    epoch: int = field(1)
    round: int = field(2, kind="sint64")
    attempt: int = field(3, default=0)
    phase: str = field(4, default="", max_bytes=32)
    step: int = field(5, default=0)
    steps: int = field(6, default=0)
    loss: float = field(7, default=0.0)
    sentence: str = field(8, default="", max_bytes=400)


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
    """

    round: int = field(1, kind="sint64")
    limit: int = field(2, default=100)
    epoch: int = field(3, default=0)
