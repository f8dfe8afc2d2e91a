"""One server as a client sees it: its address, and connections to it that one thread at a time may use."""

import asyncio
import http.client
import socket
import ssl
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from protocol.errors import Code, NodeError
from shardcast import limits

THREADS = ThreadPoolExecutor(limits.MAX_THREADS, "shardcast")
"""Where requests block: one thread for each that is under way."""

T = TypeVar("T")
_TAIL = 4096
"""Bytes at the end of a body that are read by the library, which then knows that the answer is over."""

_STATUS = {
    401: (Code.SHC_ACCESS, "it wants another token"),
    403: (Code.SHC_ACCESS, "it does not let this client in"),
    404: (Code.SHC_BUSY, "it does not have that, or not yet"),
    410: (Code.SHC_BUSY, "it does not have that any more"),
    429: (Code.SHC_BUSY, "it has no place at the moment"),
    503: (Code.SHC_BUSY, "it has no place at the moment, or not the bytes yet"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A server's address.

    Attributes:
        url: As it was given, without a slash at its end; what the source is called in messages.
        tls: Whether it is spoken to over TLS.
        host: Name or address.
        port: Its port.
        path: What stands before every path there.
        token: What it wants to be shown, or nothing.
    """

    url: str
    tls: bool
    host: str
    port: int
    path: str
    token: str = ""

    @staticmethod
    def parse(url: str, token: str = "") -> "Source":
        """Read ``http://host:port/path`` or ``https://…``; a name alone is taken for ``http://``.

        Raises:
            NodeError: CFG_USAGE.
        """
        try:
            if len(url) > limits.MAX_URL or any(ord(c) < 33 or ord(c) > 126 for c in url):
                raise ValueError("it is no URL")
            parts = urlsplit(url if "://" in url else f"http://{url}")
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("it does not begin with http:// or https:// and a host")
            if parts.query or parts.fragment or parts.username is not None:
                raise ValueError("it has a query, a fragment or a user")
            tls = parts.scheme == "https"
            port = parts.port or (443 if tls else 80)
        except ValueError as error:
            raise NodeError(
                Code.CFG_USAGE, f"{url[:100]!r} is not a server's address: {error}.",
                fix="Write it as http://203.0.113.7:8000.",
            ) from None  # fmt: skip
        path = parts.path.rstrip("/")
        return Source(f"{parts.scheme}://{parts.netloc}{path}", tls, parts.hostname, port, path, token)


class Link:
    """One connection to a source, kept alive between requests. All methods block, except `abort`.

    Args:
        source: Whom it leads to.
        silence: Seconds that the source may send nothing.
    """

    def __init__(self, source: Source, silence: float) -> None:
        self.source = source
        self._silence = silence
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._aborted = False

    def get(self, path: str, *, start: int = 0, wait: float = 0.0) -> http.client.HTTPResponse:
        """Ask for a path; the answer's body is then to be read to its end.

        Args:
            path: From the source's own path on.
            start: The first byte that is wanted.
            wait: Seconds that the source may take before it answers, beside the usual silence.

        Raises:
            NodeError: NET_UNREACHABLE, NET_TIMEOUT; SHC_BUSY, SHC_ACCESS by the status of the answer.
        """
        headers = {"Accept-Encoding": "identity", "User-Agent": "shardcast"}
        if self.source.token:
            headers["Authorization"] = f"Bearer {self.source.token}"
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            response = self._ask(path, headers, wait)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self.failed(error) from error
        if response.status not in (200, 206):
            self._drain(response)
            code, why = _STATUS.get(response.status, (Code.NET_UNREACHABLE, f"it answers {response.status}"))
            raise NodeError(code, f"{self.source.url}: {why}.", peer=self.source.url)
        return response

    def text(self, path: str, most: int, *, wait: float = 0.0) -> bytes:
        """The whole body of an answer, of at most so many bytes.

        Raises:
            NodeError: As `get`; SHC_MANIFEST, when it is longer.
        """
        response = self.get(path, wait=wait)
        try:
            data = response.read(most + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self.failed(error) from error
        if len(data) > most:
            self.close()
            raise NodeError(
                Code.SHC_MANIFEST, f"{self.source.url} sends more than {most} bytes.", peer=self.source.url
            )
        return data

    def read_into(self, response: http.client.HTTPResponse, room: memoryview) -> int:
        """Read the next bytes of an answer's body, as many as there is room for if the source brings them in time.

        Large reads go past the reader of lines and take one call of the system each.

        Raises:
            OSError, HTTPException, ValueError: See `failed`.
        """
        held = self._socket
        if held is None or response.length is None:
            raise ConnectionAbortedError("given up")
        most = min(len(room), response.length - _TAIL)
        if most < _TAIL or isinstance(held, ssl.SSLSocket):
            held.settimeout(self._silence)
            return response.readinto(room)
        if held.gettimeout() is not None:
            count = response.readinto(room[: len(response.peek())])  # what came with the head
            held.settimeout(None)  # from now on the system's clock ends a silence
            return count
        try:
            count = held.recv_into(room, most, socket.MSG_WAITALL)
        except BlockingIOError:
            raise TimeoutError from None
        response.length -= count
        return count

    def failed(self, error: Exception) -> NodeError:
        """Give the connection up, and say so in the words of the catalogue."""
        self.close()
        if isinstance(error, TimeoutError):
            return NodeError(
                Code.NET_TIMEOUT, f"{self.source.url} is silent for too long.", peer=self.source.url
            )
        words = str(error) or type(error).__name__
        return NodeError(Code.NET_UNREACHABLE, f"{self.source.url}: {words[:200]}.", peer=self.source.url)

    def close(self) -> None:
        """End the connection; the next request makes another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._socket = None

    def abort(self) -> None:
        """Make whatever blocks here fail at once, and everything later. For any thread."""
        self._aborted = True
        held = self._socket
        if held is not None:
            with suppress(OSError):
                socket.socket.shutdown(held, socket.SHUT_RDWR)  # below TLS, which another thread is using

    def _ask(self, path: str, headers: dict[str, str], wait: float) -> http.client.HTTPResponse:
        if self._aborted:
            raise ConnectionAbortedError("given up")
        fresh = self._connection is None
        connection = self._connect() if self._connection is None else self._connection
        assert self._socket is not None
        self._socket.settimeout(self._silence + wait)
        try:
            connection.request("GET", self.source.path + path, headers=headers)
            response = connection.getresponse()
        except (ConnectionError, http.client.BadStatusLine):
            self.close()
            if fresh or self._aborted:
                raise
            return self._ask(path, headers, wait)  # it was closed while nobody used it
        self._socket.settimeout(self._silence)
        return response

    def _connect(self) -> http.client.HTTPConnection:
        source = self.source
        self._socket = held = self._dial()
        connection: http.client.HTTPConnection
        if source.tls:
            context = ssl.create_default_context()
            held = context.wrap_socket(held, server_hostname=source.host)
            connection = http.client.HTTPSConnection(source.host, source.port, context=context)
        else:
            connection = http.client.HTTPConnection(source.host, source.port)
        self._socket = connection.sock = held
        self._connection = connection
        return connection

    def _dial(self) -> socket.socket:
        """Connect by one address after the other; the socket is known to `abort` from the start."""
        failure: OSError = ConnectionError("it has no address")
        found = socket.getaddrinfo(self.source.host, self.source.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found[: limits.MAX_ADDRESSES]:
            held = self._socket = socket.socket(family, kind, protocol)
            try:
                held.settimeout(limits.CONNECT.total_seconds())
                if self._aborted:
                    raise ConnectionAbortedError("given up")
                held.connect(address)
                held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(self._silence))
                return held
            except OSError as error:
                held.close()
                failure = error
        raise failure

    def _drain(self, response: http.client.HTTPResponse) -> None:
        """Read what an answer says beside its status, if that is little, so that the connection can stay."""
        with suppress(OSError, http.client.HTTPException, ValueError):
            if len(response.read(limits.MAX_LINE)) < limits.MAX_LINE:
                return
        self.close()


def _timeval(seconds: float) -> bytes:
    """A time as the system takes it."""
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


async def in_thread(link: Link, call: Callable[[], T]) -> T:
    """Run what blocks on a link in a thread; cancelling ends it."""
    work = asyncio.get_running_loop().run_in_executor(THREADS, call)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        link.abort()
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise
