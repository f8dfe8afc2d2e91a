"""What an in-memory network does to what it carries: conditions as declared, the fate of each piece as drawn."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cached_property

from protocol.units import Bytes


@dataclass(frozen=True)
class Conditions:
    """How one direction between two nodes is. Shares are probabilities from 0 to 1.

    Attributes:
        delay: How long everything is under way.
        jitter: Up to how much longer, drawn evenly; the order is kept nevertheless.
        loss: Share of calls and answers that never arrive, and of stream frames after which the stream stands still.
        duplication: Share of calls that arrive twice.
        reordering: Share of calls and answers that others may overtake: they take up to ``held_back`` longer.
        held_back: The longest that one of those takes longer.
        corruption: Share of pieces with one flipped bit. A bit flips in what its reader verifies by itself, which are
            sealed messages and the frames of bulk streams; anything else is refused by TLS: its connection breaks.
        bandwidth: Bytes per second that the sender's line carries, control and bulk each; None for no limit.
        intake: The same of the receiver's line.
    """

    delay: timedelta = timedelta(milliseconds=1)
    jitter: timedelta = timedelta()
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    held_back: timedelta = timedelta(milliseconds=50)
    corruption: float = 0.0
    bandwidth: Bytes | None = None
    intake: Bytes | None = None

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "reordering", "corruption"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a share from 0 to 1, not {getattr(self, name)}")
        if min(self.delay, self.jitter, self.held_back) < timedelta():
            raise ValueError("nothing arrives before it was sent")

    @cached_property
    def draws(self) -> bool:
        """Whether chance has a part in it."""
        shares = self.loss or self.duplication or self.reordering or self.corruption
        return bool(shares or self.jitter)

    @cached_property
    def delay_seconds(self) -> float:
        """The delay as a number."""
        return self.delay.total_seconds()


PERFECT = Conditions()
"""A millisecond each way, and nothing else."""


class Kind(StrEnum):
    """What a piece on the network is."""

    CALL = "call"
    """A message or request."""
    ANSWER = "answer"
    """The reply of a call, or its error."""
    FRAME = "frame"
    """One message of a stream."""
    TOPIC = "topic"
    """A published message on one of its hops."""


@dataclass(frozen=True)
class Fate:
    """What became of one piece.

    Attributes:
        delays: Seconds until each of its copies arrives; none if it was lost.
        bit: Which bit was flipped, None for none.
        blocked: Whether it was lost because the nodes were cut off from one another.
        overtakable: Whether others may arrive before it that were sent after it.
    """

    delays: tuple[float, ...]
    bit: int | None = None
    blocked: bool = False
    overtakable: bool = False


def flipped(raw: bytes, bit: int) -> bytes:
    """The bytes with one bit changed."""
    changed = bytearray(raw)
    changed[bit // 8 % len(changed)] ^= 1 << bit % 8
    return bytes(changed)
