"""What the desk and the endpoint ask of a transport: who calls, and a call under way."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.units import PeerId

Write = Callable[[bytes], Awaitable[None]]
"""Takes one message of a stream, and returns when the transport has room for the next."""

Read = Callable[[], Awaitable[bytes | None]]
"""Reads the next message of a call; None if there is none."""


class Caller(Protocol):
    """Who makes a call, as far as the transport knows."""

    @property
    def peer(self) -> PeerId | None:
        """The peer at the other end of the connection; None if its certificate is not known here, or no longer."""
        ...

    @property
    def address(self) -> str:
        """The network address without port: what is left to count by when the peer is not known."""
        ...

    @property
    def version(self) -> int:
        """The version of the message that the caller declared beside it; 1 where it declared none."""
        ...

    def time_left(self) -> float | None:
        """Seconds until the caller gives up; None if it did not say."""
        ...


@dataclass(frozen=True)
class KnownCaller:
    """A caller of which everything is known at once."""

    peer: PeerId | None
    address: str = ""
    version: int = 1
    left: Callable[[], float | None] = lambda: None

    def time_left(self) -> float | None:
        """Seconds until the caller gives up."""
        return self.left()


class Stream(Protocol):
    """A call under way whose question, answer or both are streams."""

    async def write(self, raw: bytes) -> None:
        """Sends one message; returns when there is room for the next."""
        ...

    async def end(self) -> None:
        """Says that nothing more will be written."""
        ...

    async def read(self) -> bytes | None:
        """The next answer, None after the last.

        Raises:
            NodeError: What the peer answered; ``E-NET-003`` when nothing came in time.
        """
        ...

    def close(self) -> None:
        """Ends the call, if it has not ended."""
        ...


Incoming = AsyncIterator[bytes]
"""The questions of a call, in order; it ends when the caller has said its last."""
