"""Connections inside streams: a local port here for every peer and plane, and the other end's local data plane there.

The bytes are those of the data plane's own TLS, so neither a relay nor this process can read or change them. Control
and bulk have a stream each, and a bulk stream keeps little under way (:mod:`protocol.paths.window`), so that a
heartbeat never waits long behind it even where both share one connection to a relay.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from protocol.paths.choice import Way
from protocol.paths.limits import CHUNK, MAX_STREAMS, MAX_STREAMS_PER_PEER, OPEN
from protocol.paths.multiaddr import is_circuit
from protocol.paths.pipe import Duplex, carry
from protocol.units import Address, PeerId

PLANES = ("control", "bulk")

_LOOPBACK = "127.0.0.1"


def tunnel_protocol(plane: str) -> str:
    """The name of the stream that carries a plane."""
    return f"/intellect/tunnel/{plane}/1"


Handler = Callable[[PeerId, str, Duplex], Awaitable[None]]
"""Takes a stream that came: who opened it (verified), the multiaddr of the way it takes, the stream."""


class Streams(Protocol):
    """Opens and takes streams between peers."""

    async def open(self, peer: PeerId, name: str) -> tuple[Duplex, str]:
        """Opens a stream; returns it with the multiaddr of the way it takes.

        Raises:
            OSError: It cannot be opened.
        """

    async def serve(self, name: str, handler: Handler) -> None:
        """Has streams of a protocol handled."""


OnWay = Callable[[PeerId, str, Way, str], None]
"""Is told of every stream that opens: peer, plane, its way, the multiaddr."""


Punch = Callable[[PeerId, str], Awaitable[tuple[Duplex, str] | None]]
"""Opens a connection to a peer for a plane from both sides at once; returns it with its multiaddr, or None."""


async def _no_punch(peer: PeerId, plane: str) -> None:
    return None


class Dialling:
    """Local ports that lead to peers.

    Args:
        streams: Opens streams.
        on_way: Told which way each stream takes.
        on_failure: Told a peer, a plane and why a stream to it cannot be opened.
        punch: Tried where a stream goes through a relay.
    """

    def __init__(
        self,
        streams: Streams,
        on_way: OnWay,
        on_failure: Callable[[PeerId, str, str], None],
        *,
        punch: Punch = _no_punch,
    ) -> None:
        self._streams, self._on_way, self._on_failure, self._punch = streams, on_way, on_failure, punch
        self._ports: dict[tuple[PeerId, str], tuple[asyncio.Server, Address]] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def port(self, peer: PeerId, plane: str) -> Address:
        """The local address whose connections reach a plane of a peer; always the same one."""
        if plane not in PLANES:
            raise ValueError(f"no plane {plane!r}")
        known = self._ports.get((peer, plane))
        if known is not None:
            return known[1]

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            with contextlib.suppress(asyncio.CancelledError):
                await self._take(peer, plane, Duplex(reader, writer))

        server = await asyncio.start_server(take, _LOOPBACK, 0, limit=int(CHUNK))
        address = Address(_LOOPBACK, server.sockets[0].getsockname()[1])
        self._ports[peer, plane] = (server, address)
        return address

    async def _take(self, peer: PeerId, plane: str, local: Duplex) -> None:
        try:
            async with asyncio.timeout(OPEN.total_seconds()):
                stream, way = await self._streams.open(peer, tunnel_protocol(plane))
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
            self._on_failure(peer, plane, str(error) or f"no stream within {OPEN.total_seconds():g} s")
            local.close()
            return
        taken = Way.RELAYED if is_circuit(way) else Way.DIRECT
        if taken is Way.RELAYED:
            punched = await self._punch(peer, plane)
            if punched is not None:
                stream.close()
                taken, (stream, way) = Way.PUNCHED, punched
        self._on_way(peer, plane, taken, way)
        await carry(local, stream)

    async def forget(self, peer: PeerId) -> None:
        """Closes the ports of a peer; connections under way go on."""
        for plane in PLANES:
            known = self._ports.pop((peer, plane), None)
            if known is not None:
                known[0].close()

    async def stop(self) -> None:
        """Ends everything."""
        for server, _ in self._ports.values():
            server.close()
        self._ports.clear()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


class Serving:
    """Takes tunnelled connections to this node's data plane.

    Args:
        data: Where the data plane listens on this machine.
    """

    def __init__(self, data: Address) -> None:
        self._data = data
        self._open: Counter[PeerId] = Counter()
        self.refused = 0
        """Streams beyond the bounds."""

    async def attach(self, streams: Streams) -> None:
        """Begins to take them."""
        for plane in PLANES:
            await streams.serve(tunnel_protocol(plane), self.take)

    async def take(self, peer: PeerId, way: str, stream: Duplex) -> None:
        """Carries one stream until it ends."""
        if self._open.total() >= MAX_STREAMS or self._open[peer] >= MAX_STREAMS_PER_PEER:
            self.refused += 1
            stream.close()
            return
        self._open[peer] += 1
        try:
            reader, writer = await asyncio.open_connection(self._data.host, self._data.port, limit=int(CHUNK))
            await carry(Duplex(reader, writer), stream)
        except OSError:
            stream.close()
        finally:
            self._open[peer] -= 1
            if not self._open[peer]:
                del self._open[peer]
