"""Streams between peers through the network helper: each is one local connection to it, or one from it."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from protocol.paths.limits import CHUNK, OPEN
from protocol.paths.multiaddr import from_bytes, peer_bytes, peer_of, to_bytes, varint
from protocol.paths.pipe import Duplex
from protocol.paths.tunnel import Handler
from protocol.units import PeerId

_MAX_MESSAGE = 1 << 20


async def write_message(writer: asyncio.StreamWriter, message: Any) -> None:
    """Writes a protobuf message as the helper reads it, with its length before it."""
    data = message.SerializeToString()
    writer.write(varint(len(data)) + data)
    await writer.drain()


async def read_message(reader: asyncio.StreamReader, message: Any) -> None:
    """Reads one, and not a byte of what follows.

    Raises:
        ValueError: It is too large.
        IncompleteReadError: The connection ended.
    """
    size = shift = 0
    while True:
        byte = (await reader.readexactly(1))[0]
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift > 28:
            raise ValueError("the helper said something too large")
    if size > _MAX_MESSAGE:
        raise ValueError(f"the helper said something of {size} bytes")
    message.ParseFromString(await reader.readexactly(size))


class HelperStreams:
    """Opens streams and takes those that come.

    Args:
        messages: The protobuf module of the helper's messages.
        door: Path of the helper's control socket, as this process reaches it.
        listener: The socket to which the helper brings streams.
        brought_to: Its multiaddr as the helper reaches it.
        ask: Asks the helper one question.
        introduce: Makes the helper know where a peer is; returns what is wrong, or nothing.
    """

    def __init__(
        self,
        messages: Any,
        *,
        door: str,
        listener: socket.socket,
        brought_to: str,
        ask: Callable[[Any], Awaitable[Any]],
        introduce: Callable[[PeerId], Awaitable[str | None]],
    ) -> None:
        self._messages, self._door, self._listener = messages, door, listener
        self._brought_to, self._ask, self._introduce = brought_to, ask, introduce
        self._handlers: dict[str, Handler] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begins to take streams."""
        self._server = await asyncio.start_unix_server(self._take, sock=self._listener, limit=int(CHUNK))

    async def serve(self, name: str, handler: Handler) -> None:
        """Has streams of a protocol handled.

        Raises:
            OSError: The helper refuses.
        """
        self._handlers[name] = handler
        wanted = self._messages.StreamHandlerRequest(
            addr=to_bytes(self._brought_to), proto=[name], balanced=False
        )
        kind = self._messages.Request.STREAM_HANDLER
        self._checked(await self._ask(self._messages.Request(type=kind, streamHandler=wanted)))

    async def open(self, peer: PeerId, name: str) -> tuple[Duplex, str]:
        """Opens a stream; returns it with the multiaddr of the way it takes.

        Raises:
            OSError: It cannot be opened.
        """
        try:
            return await self._open(peer, name)
        except OSError:  # it may only not know where the peer is
            wrong = await self._introduce(peer)
            if wrong is not None:
                raise OSError(wrong) from None
            return await self._open(peer, name)

    async def _open(self, peer: PeerId, name: str) -> tuple[Duplex, str]:
        reader, writer = await asyncio.open_unix_connection(self._door, limit=int(CHUNK))
        try:
            seconds = round(OPEN.total_seconds())
            wanted = self._messages.StreamOpenRequest(peer=peer_bytes(peer), proto=[name], timeout=seconds)
            kind = self._messages.Request.STREAM_OPEN
            await write_message(writer, self._messages.Request(type=kind, streamOpen=wanted))
            response = self._messages.Response()
            await read_message(reader, response)
            self._checked(response)
            return Duplex(reader, writer), from_bytes(response.streamInfo.addr)
        except BaseException as error:
            writer.transport.abort()
            if isinstance(error, asyncio.IncompleteReadError | ValueError):
                raise OSError(f"the network helper gave no stream: {error}") from error
            raise

    def _checked(self, response: Any) -> None:
        if response.type == self._messages.Response.ERROR:
            raise OSError(" ".join(response.error.msg.split())[-300:])

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            info = self._messages.StreamInfo()
            async with asyncio.timeout(OPEN.total_seconds()):
                await read_message(reader, info)
            peer, way = peer_of(info.peer), from_bytes(info.addr)
            await self._handlers[info.proto](peer, way, Duplex(reader, writer))
        except (OSError, TimeoutError, ValueError, KeyError, asyncio.IncompleteReadError):
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()

    async def stop(self) -> None:
        """Ends all streams."""
        if self._server is not None:
            self._server.close()
        for task in list(self._running):
            task.cancel()
        with contextlib.suppress(Exception):
            await asyncio.gather(*self._running, return_exceptions=True)
        self._listener.close()
