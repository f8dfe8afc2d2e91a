"""Hole punching: two nodes behind routers open one TCP connection from both sides at the same moment.

Over a stream that goes through a relay they tell each other the address that others see them at and a free port, then
both connect from that port to the other's until it works or time is up. Each router has then seen its own side dial out
and takes the other's packets for answers (RFC 5382, section 4.3: simultaneous open). It needs routers that keep the
port of what they translate, as home routers and Linux do when the port is free; with others it fails, in seconds, and
the relay stays. What comes over the connection proves itself by the data plane's mutual TLS.
"""

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from protocol.paths.choice import is_loopback
from protocol.paths.limits import (
    ASK,
    CHUNK,
    MAX_PUNCHES,
    PUNCH,
    PUNCH_AGAIN,
    PUNCH_EVERY,
    PUNCH_WITHIN,
    PUNCHES_FROM_ONE,
)
from protocol.paths.lines import hear, tell
from protocol.paths.pipe import Duplex
from protocol.paths.tunnel import Streams
from protocol.units import PeerId

PROTOCOL = "/intellect/punch/1"

T = TypeVar("T")

_REMEMBERED = 4096
_BUSY = (errno.EADDRNOTAVAIL, errno.EADDRINUSE)


class Punching:
    """A node's part in hole punching.

    Args:
        streams: Opens streams.
        seen: The address that others see this node at; empty if nobody told, or if it needs no hole.
        take: Takes a connection that a peer invited to: peer, multiaddr, connection.
        clock: Gives seconds that never go back.
    """

    def __init__(
        self,
        streams: Streams,
        seen: Callable[[], str],
        take: Callable[[PeerId, str, Duplex], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._streams, self._seen, self._take, self._clock = streams, seen, take, clock
        self._failed: dict[PeerId, float] = {}
        self._invited: dict[PeerId, tuple[float, ...]] = {}
        self._following = 0

    async def punch(self, peer: PeerId, plane: str) -> tuple[Duplex, str] | None:
        """Tries to open a connection to a peer; returns it with its multiaddr, None if it does not work."""
        seen, now = self._seen(), self._clock()
        failed = self._failed.get(peer)
        if not seen or (failed is not None and now - failed < PUNCH_EVERY.total_seconds()):
            return None
        try:
            stream, _ = await self._streams.open(peer, PROTOCOL)
            return await invite(stream, seen, plane)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            _note(self._failed, peer, now)
            return None

    async def follow(self, peer: PeerId, way: str, stream: Duplex) -> None:
        """Follows a peer's invitation."""
        seen, now = self._seen(), self._clock()
        late = tuple(
            when for when in self._invited.get(peer, ()) if now - when < PUNCH_WITHIN.total_seconds()
        )
        if not seen or len(late) >= PUNCHES_FROM_ONE or self._following >= MAX_PUNCHES:
            stream.close()
            return
        _note(self._invited, peer, (*late, now))
        self._following += 1
        try:
            connection, address = await accept(stream, seen)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            return
        finally:
            self._following -= 1
        await self._take(peer, address, connection)


def _note(times: dict[PeerId, T], peer: PeerId, when: T) -> None:
    times.pop(peer, None)
    times[peer] = when  # re-entered last: order is by use
    if len(times) > _REMEMBERED:
        del times[next(iter(times))]


@dataclass(frozen=True)
class Hole:
    """One side's end: a bound socket, and where the other side is expected."""

    socket: socket.socket
    host: str
    port: int


async def invite(stream: Duplex, seen: str, plane: str) -> tuple[Duplex, str]:
    """Opens a connection to the peer at the other end of a stream.

    Args:
        stream: A stream to it; closed at the end.
        seen: The address that others see this node at.
        plane: What it will carry.

    Returns:
        The connection and its multiaddr.

    Raises:
        OSError, TimeoutError, ValueError: It does not work.
    """
    ours = _bound()
    try:
        async with asyncio.timeout(ASK.total_seconds()):
            await tell(stream, {"host": seen, "port": ours.getsockname()[1], "plane": plane})
            hole = _hole(ours, await hear(stream), seen)
            await tell(stream, {"go": True})
        return await _open(hole)
    except BaseException:
        ours.close()
        raise
    finally:
        stream.close()


async def accept(stream: Duplex, seen: str) -> tuple[Duplex, str]:
    """The other side of :func:`invite`.

    Returns:
        The connection and its multiaddr.

    Raises:
        OSError, TimeoutError, ValueError: It does not work.
    """
    ours = _bound()
    try:
        async with asyncio.timeout(ASK.total_seconds()):
            hole = _hole(ours, await hear(stream), seen)
            await tell(stream, {"host": seen, "port": ours.getsockname()[1]})
            await hear(stream)
        return await _open(hole)
    except BaseException:
        ours.close()
        raise
    finally:
        stream.close()


def _bound() -> socket.socket:
    ours = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    ours.bind(("", 0))
    return ours


def _hole(ours: socket.socket, said: dict[str, object], seen: str) -> Hole:
    """Where the other side is expected; never on this machine, unless all of it is."""
    host, port = said.get("host"), said.get("port")
    if not isinstance(host, str) or type(port) is not int or not 1024 <= port < 65536:
        raise ValueError("no address")
    address = ipaddress.IPv4Address(host)  # an address and no name; raises ValueError
    nowhere = address.is_multicast or address.is_reserved or address.is_link_local or address.packed[0] == 0
    if nowhere or address.is_loopback is not is_loopback(seen):
        raise ValueError(f"no node is seen at {host}")
    return Hole(ours, host, port)


async def _open(hole: Hole) -> tuple[Duplex, str]:
    """Connects until it works: a router that knows nothing of the other side yet may refuse the first tries."""
    loop = asyncio.get_running_loop()
    port, current = hole.socket.getsockname()[1], hole.socket
    async with asyncio.timeout(PUNCH.total_seconds()):
        while True:
            current.setblocking(False)
            try:
                await loop.sock_connect(current, (hole.host, hole.port))
                connection = Duplex(*await asyncio.open_connection(sock=current, limit=int(CHUNK)))
                return connection, f"/ip4/{hole.host}/tcp/{hole.port}"
            except OSError as error:
                current.close()
                if error.errno not in (*_BUSY, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ECONNRESET):
                    raise
                await asyncio.sleep(PUNCH_AGAIN.total_seconds())
                current = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                current.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                current.bind(("", port))
            except BaseException:
                current.close()
                raise
