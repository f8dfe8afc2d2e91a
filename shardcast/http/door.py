"""Who may ask a server, how often and how much: connections, requests and bytes of each client."""

import asyncio
import hmac
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from shardcast import limits

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(texts: Collection[str]) -> tuple[Network, ...]:
    """Read addresses and networks such as ``192.0.2.0/24``.

    Raises:
        NodeError: CFG_USAGE.
    """
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise NodeError(
            Code.CFG_USAGE, f"{error}.", fix="Write addresses or networks such as 192.0.2.0/24."
        ) from None


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may ask.

    Attributes:
        tokens: One of these has to be shown, if there are any.
        allow: Networks that clients have to be in, if there are any. A token does as well.
        proxies: Networks of proxies, such as an nginx before the server, that are believed whom they ask for.
        connections: Connections, and requests at a time, of one client.
        rate: Bytes per second of one client; 0 for as many as there are.
    """

    tokens: Collection[str] = ()
    allow: tuple[Network, ...] = ()
    proxies: tuple[Network, ...] = ()
    connections: int = limits.CONNECTIONS_PER_CLIENT
    rate: float = 0.0

    @property
    def open(self) -> bool:
        """Whether anybody may ask, so that caches may keep what was answered."""
        return not self.tokens and not self.allow

    def client(self, request: web.BaseRequest) -> str:
        """The address that a request comes from."""
        remote = request.remote or ""
        if self.proxies and _within(remote, self.proxies):
            forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
            if forwarded:
                return forwarded[:64]
        return remote

    def admits(self, request: web.BaseRequest) -> bool:
        """Whether a request may be answered."""
        if self.open:
            return True
        if self.allow and _within(self.client(request), self.allow):
            return True
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        return any([hmac.compare_digest(shown, token.encode()) for token in self.tokens])


def _within(address: str, networks: Collection[Network]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)


class Throttle:
    """Bytes per second of each client."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._next: dict[str, float] = {}  # when the client's bytes so far will have been due

    async def pass_on(self, client: str, size: int) -> None:
        """Wait until so many bytes may go to a client."""
        if not self._rate:
            return
        now = monotonic()
        due = max(self._next.get(client, now), now - 0.25)
        self._next[client] = due + size / self._rate
        if len(self._next) > 4 * limits.MAX_CONNECTIONS:
            self._next = {c: t for c, t in self._next.items() if t > now}
        if due > now:
            await asyncio.sleep(due - now)


class Door:
    """Makes a protocol for each connection, as long as there are not too many, and ends those that say nothing.

    Args:
        make: Makes what speaks HTTP on a connection.
        access: Its limits.
    """

    def __init__(self, make: Callable[[], asyncio.Protocol], access: Access) -> None:
        self._make, self._access = make, access
        self._connections: Counter[str] = Counter()
        self._spoken: set[asyncio.BaseTransport] = set()
        self._open: set[asyncio.Transport] = set()

    def __call__(self) -> asyncio.Protocol:
        """One connection's protocol."""
        return _Threshold(self)

    def spoke(self, transport: asyncio.BaseTransport | None) -> None:
        """A whole request came on a connection."""
        if transport is not None:
            self._spoken.add(transport)

    def close(self) -> None:
        """End every connection at once."""
        for transport in self._open:
            transport.abort()

    def enter(self, transport: asyncio.Transport) -> asyncio.Protocol | None:
        """The protocol for a connection; None, if there are too many."""
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        trusted = bool(self._access.proxies) and _within(address, self._access.proxies)
        most = limits.MAX_CONNECTIONS if trusted else self._access.connections
        if self._connections.total() >= limits.MAX_CONNECTIONS or self._connections[address] >= most:
            return None
        self._connections[address] += 1
        self._open.add(transport)
        held: socket.socket | None = transport.get_extra_info("socket")
        if held is not None and held.family in (socket.AF_INET, socket.AF_INET6):
            stall = int(limits.SEND_STALL.total_seconds() * 1000)
            held.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(limits.FIRST_WORD.total_seconds(), self._look, transport)
        return _Inside(self._make(), lambda: self._leave(address, transport, timer))

    def _look(self, transport: asyncio.Transport) -> None:
        if transport not in self._spoken:
            transport.abort()

    def _leave(self, address: str, transport: asyncio.Transport, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._spoken.discard(transport)
        self._open.discard(transport)
        self._connections[address] -= 1
        if not self._connections[address]:
            del self._connections[address]


class _Threshold(asyncio.Protocol):
    def __init__(self, door: Door) -> None:
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        inside = self._door.enter(transport)
        if inside is None:
            transport.abort()
            return
        transport.set_protocol(inside)
        inside.connection_made(transport)


class _Inside(asyncio.Protocol):
    """Hands everything on to the protocol that speaks HTTP, and tells when the connection ended."""

    def __init__(self, inner: asyncio.Protocol, left: Callable[[], None]) -> None:
        self._left = left
        self._inner = inner
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._left()
        self._inner.connection_lost(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
