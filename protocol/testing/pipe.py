"""One direction of a stream over an in-memory network: frames in order, and a writer that waits for its reader."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.errors import Code, NodeError
from protocol.messages.registry import Plane
from protocol.testing.conditions import Kind
from protocol.units import Bytes

if TYPE_CHECKING:
    from protocol.testing.network import Network, Place

WINDOW = Bytes.parse("1 MiB")
"""What a writer may be ahead of its reader."""


class Pipe:
    """Frames from one place to another.

    Args:
        network: What carries them.
        source: The writer.
        target: The reader.
        plane: The connection.
        name: The message's name.
    """

    def __init__(self, network: "Network", source: "Place", target: "Place", plane: Plane, name: str) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._plane = plane
        self._name = name
        self._frames: deque[bytes | None] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._ahead = 0
        self.broken = False
        """Whether a frame was lost: none that is sent after it can be delivered."""
        self._read_error: NodeError | None = None
        self._write_error: NodeError | None = None

    async def write(self, frame: bytes) -> None:
        """Sends a frame, and waits while the reader has too much before it.

        Raises:
            NodeError: The stream has failed.
        """
        self._ahead += len(frame)
        self._send(frame)
        while self._ahead > WINDOW and self._write_error is None:
            self._writer = self._network.loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        if self._write_error is not None:
            raise self._write_error

    def finish(self, after: Callable[[], None] | None = None) -> None:
        """Ends the stream, behind its last frame; ``after`` is called where and when the end arrives."""
        self._send(None, after)

    async def read(self) -> bytes | None:
        """The next frame, None after the last.

        Raises:
            NodeError: The stream has failed; frames that came before are read first.
        """
        while not self._frames:
            if self._read_error is not None:
                raise self._read_error
            self._reader = self._network.loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        frame = self._frames[0]
        if frame is None:
            return None
        self._frames.popleft()
        size = len(frame)
        self._network.signal(self._target, self._source, lambda _: self._credit(size))
        return frame

    def fail_reader(self, error: NodeError) -> None:
        """Nothing more will come, as far as the reader is concerned."""
        self._read_error = self._read_error or error
        _wake(self._reader)

    def fail_writer(self, error: NodeError) -> None:
        """Nothing more can be sent, as far as the writer is concerned."""
        self._write_error = self._write_error or error
        _wake(self._writer)

    def _send(self, frame: bytes | None, after: Callable[[], None] | None = None) -> None:
        if self.broken:
            return

        def deliver(arrived: bytes | None) -> None:
            if arrived is None:
                sentence = f"The connection broke under {self._name}."
                self.fail_reader(NodeError(Code.NET_UNREACHABLE, sentence, message=self._name))
                return
            self._frames.append(None if frame is None else arrived)
            _wake(self._reader)
            if after is not None:
                after()

        self._network.carry(
            self._source, self._target, self._plane, Kind.FRAME, self._name, frame or b"", deliver, self._lost
        )

    def _lost(self) -> None:
        self.broken = True

    def _credit(self, size: int) -> None:
        self._ahead -= size
        _wake(self._writer)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
