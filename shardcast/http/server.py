"""A catalogue over HTTP: the list of versions, manifests as they grow, shards as they come.

    GET /versions?after=CURSOR&wait=SECONDS       the list, held back while it is the one that CURSOR names
    GET /manifests/HEADER?from=BYTE&wait=SECONDS  the text from a byte on, held back while there is none
    GET /shards/HASH                              a shard, whole or from a byte on (Range)

HEADER is the link of a manifest's header, HASH the BLAKE3 of a shard, both in hexadecimal. A shard's address never
means other bytes, so any cache on the way may keep it. A shard that is still coming is sent as far as it came, without
its end, which follows when the hash agrees; if it does not, the connection is reset.
"""

import asyncio
import contextlib
import logging
import random
import re
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NoReturn

from aiohttp import web

from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.files import read_exactly
from shardcast import limits
from shardcast.http.catalogue import Catalogue, Held
from shardcast.http.door import Access, Door, Throttle
from shardcast.http.known import Known
from shardcast.http.listing import write_listing
from shardcast.piece import Piece

log = logging.getLogger(__name__)
_HEX = re.compile(r"[0-9a-f]{64}")
_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{1,15})?")
_SOON = 0.1
"""Seconds within which a shard that is coming has to be whole, by its pace, or its bytes are passed on as they come."""
_FOREVER = "max-age=31536000, immutable"


class Server:
    """Serves a catalogue.

    Args:
        catalogue: What there is.
        access: Who may ask.
        check: Looks at a shard before it is sent, blocking; false says that its bytes are not right any more. For
            objects that lay on a disk while nobody watched.
        forwards: Whether a shard that is coming is waited for and passed on as it comes. Two that fetch from each other
            would wait for each other.

    Attributes:
        sent: Bytes of shards that were sent.
        port: Where it listens.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        access: Access | None = None,
        check: Callable[[Held, int], Awaitable[bool]] | None = None,
        *,
        forwards: bool = True,
    ) -> None:
        self.catalogue = catalogue
        self.sent = 0
        self.port = 0
        self._access = access or Access()
        self._check, self._forwards = check, forwards
        self._throttle = Throttle(self._access.rate)
        self._peers = Known(limits.PEER_LASTS.total_seconds(), limits.MAX_CONNECTIONS)
        self._asking: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._runner: web.ServerRunner | None = None

    async def start(self, host: str | None, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen; port 0 takes any free one. With `tls` over HTTPS.

        Raises:
            NodeError: NET_PORT_IN_USE.
        """
        handler = web.Server(
            self._answer, keepalive_timeout=2 * limits.LONG_POLL.total_seconds(), lingering_time=0
        )
        self._runner = web.ServerRunner(handler, shutdown_timeout=0.1)
        await self._runner.setup()
        self._door = Door(handler, self._access)
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._door, host, port, ssl=tls, backlog=1024, reuse_address=True
            )
        except OSError as error:
            await self._runner.cleanup()
            raise NodeError(
                Code.NET_PORT_IN_USE,
                f"Port {port} of {host or 'this machine'} cannot be used: {error.strerror}.",
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._door.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # ---- answering

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._door.spoke(request.transport)
        client = self._access.client(request)
        if not self._access.admits(request):
            return _plain(401 if self._access.tokens else 403)
        if self._asking[client] >= self._access.connections:
            return _plain(503)
        self._asking[client] += 1
        try:
            return await self._route(request, client)
        finally:
            self._asking[client] -= 1
            if not self._asking[client]:
                del self._asking[client]

    async def _route(self, request: web.BaseRequest, client: str) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return _plain(405)
        _, what, *rest = request.path.split("/")
        match what, rest:
            case "versions", []:
                return await self._versions(request, client)
            case "manifests", [identifier] if _HEX.fullmatch(identifier):
                return await self._manifest(request, identifier)
            case "shards", [digest] if _HEX.fullmatch(digest):
                return await self._shard(request, client, digest)
        return _plain(404)

    async def _versions(self, request: web.BaseRequest, client: str) -> web.StreamResponse:
        after, wait = request.query.get("after", ""), _seconds(request)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while self.catalogue.cursor == after:
                    await self.catalogue.change()
        peers = self._introduce(client, request.query.get("serves", ""))
        body = write_listing(self.catalogue.cursor, self.catalogue.entries(), peers)
        return web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})

    def _introduce(self, client: str, port: str) -> list[str]:
        """Other clients that serve, for one that does as well. It is named by the address that it asks from."""
        if not re.fullmatch(r"[1-9]\d{0,4}", port) or int(port) > 65535:
            return []
        own = f"http://[{client}]:{port}" if ":" in client else f"http://{client}:{port}"
        self._peers.note(own, monotonic())
        others = self._peers.others(own, monotonic())
        return random.sample(others, min(len(others), limits.MAX_PEERS))

    async def _manifest(self, request: web.BaseRequest, identifier: str) -> web.StreamResponse:
        held = self.catalogue.held.get(identifier)
        start = _number(request.query.get("from", "0"))
        if held is None or start is None:
            return _plain(404 if held is None else 400)
        growing = held.growing
        with contextlib.suppress(TimeoutError), held.reading():
            async with asyncio.timeout(_seconds(request)):
                while start >= growing.sure and not growing.closed and identifier in self.catalogue.held:
                    await held.change()
        if start > growing.sure:
            return _plain(416)
        headers = {"Cache-Control": "no-store"}
        if growing.closed:
            headers = {"Cache-Control": self._kept(), "ETag": f'"{growing.digest.hex()}"'}  # type: ignore[union-attr]
        body = bytes(memoryview(growing.text)[start : growing.sure])
        return web.Response(body=body, content_type="text/plain", headers=headers)

    def _kept(self) -> str:
        return f"{'public' if self._access.open else 'private'}, {_FOREVER}"

    # ---- shards

    async def _shard(self, request: web.BaseRequest, client: str, digest: str) -> web.StreamResponse:
        etag = f'"{digest}"'
        found = self.catalogue.find(bytes.fromhex(digest))
        if found is None:
            return _plain(404)
        if request.headers.get("If-None-Match", "") in (etag, "*"):
            return _plain(304, {"ETag": etag, "Cache-Control": self._kept()})
        held, index = found
        size = held.growing.shard(index).size
        start, end = 0, size
        asked = _RANGE.fullmatch(request.headers.get("Range", ""))
        if asked is not None and request.headers.get("If-Range", etag) == etag:
            start, end = int(asked[1]), min(size, int(asked[2] or size) + 1)
            if start >= end:
                return _plain(416, {"Content-Range": f"bytes */{size}"})
        else:
            asked = None
        with held.reading():
            if not await self._ready(held, index, start):
                return _plain(503)
            response = web.StreamResponse(status=206 if asked else 200)
            response.content_length = end - start
            response.content_type = "application/octet-stream"
            response.headers["Cache-Control"] = self._kept()
            response.headers["ETag"] = etag
            response.headers["Accept-Ranges"] = "bytes"
            if asked:
                response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
            try:
                await response.prepare(request)
                if request.method == "GET":
                    await _Sending(self, request, response, client, held, index).send(start, end)
                await response.write_eof()
            except ConnectionError:
                if request.transport is not None:
                    request.transport.abort()
        return response

    async def _ready(self, held: Held, index: int, start: int) -> bool:
        """Whether the first byte that is wanted is there, or comes soon."""
        if held.has(index):
            if self._check is None or await self._check(held, index):
                return True
            held.lost(index)
        if not self._forwards:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.NOT_YET.total_seconds()):
                while not held.has(index):
                    piece = held.pieces.get(index)
                    if piece is not None and _open(piece.have, piece.shard.size) > start:
                        return True
                    await held.change()
        return held.has(index)


def _open(have: int, size: int) -> int:
    """How much of a shard may be sent while its hash is not known."""
    return min(have, max(0, size - limits.HOLD_BACK))


class _Sending:
    """One shard on its way to one client."""

    def __init__(
        self,
        server: Server,
        request: web.BaseRequest,
        response: web.StreamResponse,
        client: str,
        held: Held,
        index: int,
    ) -> None:
        self._server, self._request, self._response = server, request, response
        self._client, self._held, self._index = client, held, index
        self._shard = held.growing.shard(index)

    async def send(self, at: int, end: int) -> None:
        """Send bytes as they come. Bytes of a shard that turns out wrong are never completed."""
        held, index, source = self._held, self._index, None
        await self._soon()
        while at < end:
            if held.has(index):
                if source is not None and source.verdict is not True:
                    self._reset()  # what was sent came from elsewhere than what was kept
                await self._from_file(at, end)
                return
            piece = source or held.pieces.get(index)
            if piece is not None and piece.verdict is False:
                self._reset()
            ready = 0 if piece is None else _open(piece.have, self._shard.size)
            if end < self._shard.size:
                ready = 0  # a part that is complete before the hash is known proves nothing
            if piece is not None and ready > at:
                source = piece
                await self._from_memory(piece, at, min(end, ready))
                at = min(end, ready)
                continue
            await self._wait()

    async def _soon(self) -> None:
        """Wait for a shard that is going to be whole in a moment: from the file it costs less than from memory."""
        began, waited = monotonic(), 0.0
        while not self._held.has(self._index) and waited < _SOON:
            piece = self._held.pieces.get(self._index)
            have = 0.0 if piece is None else piece.have / self._shard.size
            if waited > _SOON / 5 and have * _SOON < waited:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SOON / 5):
                    await self._held.change()
            waited = monotonic() - began

    def _reset(self) -> NoReturn:
        raise ConnectionResetError("the shard is not what its hash says")

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(limits.SILENCE.total_seconds()):
                await self._held.change()
        except TimeoutError:
            self._reset()

    async def _from_memory(self, piece: Piece, at: int, end: int) -> None:
        data = piece.data
        while at < end:
            step = min(end - at, limits.FRAME)
            await self._server._throttle.pass_on(self._client, step)
            await self._response.write(data[at : at + step])
            self._server.sent += step
            at += step

    async def _from_file(self, at: int, end: int) -> None:
        loop, transport = asyncio.get_running_loop(), self._request.transport
        encrypted = transport is not None and transport.get_extra_info("sslcontext") is not None
        step = limits.FRAME if encrypted or self._server._access.rate else end - at
        while at < end:
            count = min(step, end - at)
            await self._server._throttle.pass_on(self._client, count)
            if transport is None or transport.is_closing():
                raise ConnectionResetError("the client left")
            place = self._shard.offset + at
            if encrypted:
                data = await asyncio.to_thread(read_exactly, self._held.file.fileno(), count, place)
                await self._response.write(data)
                sent = len(data)
            else:
                sent = await loop.sendfile(transport, self._held.file, place, count)
            if sent != count:
                self._reset()  # the file became shorter
            self._server.sent += count
            at += count


def _plain(status: int, headers: dict[str, str] | None = None) -> web.Response:
    held = {"Cache-Control": "no-store", **(headers or {})}
    if status == 503:
        held["Retry-After"] = "1"
    if status == 401:
        held["WWW-Authenticate"] = "Bearer"
    return web.Response(status=status, headers=held)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,15}", text) else None


def _seconds(request: web.BaseRequest) -> float:
    asked = timedelta(seconds=_number(request.query.get("wait", "0")) or 0)
    return min(asked, limits.LONG_POLL).total_seconds()
