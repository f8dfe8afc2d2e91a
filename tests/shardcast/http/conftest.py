import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from protocol.identity import Identity
from shardcast.expect import Expect
from shardcast.http.door import Access
from shardcast.http.fetching import Fetched, fetch_version
from shardcast.http.intake import Manner
from shardcast.http.origin import Origin, Published
from shardcast.http.relay import Relay
from shardcast.http.server import Server
from shardcast.http.source import Source

MIB = 1024 * 1024
QUICK = Manner(silence=timedelta(seconds=5), patience=timedelta(seconds=60))
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def url_of(server: Origin | Relay | int) -> str:
    port = server if isinstance(server, int) else server.server.port
    return f"http://127.0.0.1:{port}"


class Tree:
    """Origins, relays and made-up servers of one test on loopback, all ended with it."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.identity = Identity.ephemeral(b"publisher".ljust(32))
        self._stack = stack
        self._count = 0

    def file(self, size: int, name: str = "", *, seed: int = 1) -> Path:
        """A file of random bytes."""
        self._count += 1
        path = self.folder / (name or f"file{self._count}")
        path.write_bytes(random.Random(seed + self._count).randbytes(size))
        return path

    async def origin(self, folder: str = "origin", *, port: int = 0, **options: Any) -> Origin:
        origin = Origin(self.folder / folder, options.pop("identity", self.identity), **options)
        await origin.start("127.0.0.1", port)
        self._stack.push_async_callback(_stopped, origin)
        return origin

    async def also(self, origin: Origin, access: Access) -> str:
        """The same objects at another address, with other limits; returns its URL."""
        server = Server(origin.catalogue, access)
        await server.start("127.0.0.1", 0)
        self._stack.push_async_callback(server.stop)
        return f"http://127.0.0.1:{server.port}"

    async def relay(
        self, sources: Sequence[Origin | Relay | str], folder: str = "relay", *, port: int = 0, **options: Any
    ) -> Relay:
        urls = [source if isinstance(source, str) else url_of(source) for source in sources]
        options.setdefault("manner", QUICK)
        relay = Relay(self.folder / folder, [Source.parse(url) for url in urls], **options)
        await relay.start("127.0.0.1", port)
        self._stack.push_async_callback(_stopped, relay)
        return relay

    async def server(self, handler: Handler) -> str:
        """A made-up server; returns its URL."""
        runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._stack.push_async_callback(runner.cleanup)
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def proxy(self, upstream: Origin | Relay, change: Callable[[str, bytes], bytes | None]) -> str:
        """A server that passes another's answers on, changed by path; None for an answer that it has not."""
        from shardcast.http.source import Link, in_thread

        async def handler(request: web.BaseRequest) -> web.StreamResponse:
            link = Link(Source.parse(url_of(upstream)), 30.0)
            try:
                body = await in_thread(link, lambda: link.text(request.path_qs, 1 << 30, wait=30))
            except Exception:
                return web.Response(status=404)
            finally:
                link.close()
            changed = change(request.path, body)
            return web.Response(status=404) if changed is None else web.Response(body=changed)

        return await self.server(handler)

    async def fetch(
        self,
        sources: Sequence[Origin | Relay | str],
        into: str = "fetched",
        *,
        version: str | None = None,
        token: str = "",
        **options: Any,
    ) -> Fetched:
        urls = [source if isinstance(source, str) else url_of(source) for source in sources]
        expect = options.pop("expect", Expect(publisher=self.identity.peer_id, version=version))
        options = {"silence": QUICK.silence, "patience": QUICK.patience, **options}
        return await fetch_version(
            [Source.parse(url, token) for url in urls], self.folder / into, expect, **options
        )


async def _stopped(server: Origin | Relay) -> None:
    if server.server._server is not None:
        await server.stop()


@pytest.fixture
async def tree(tmp_path: Path) -> AsyncIterator[Tree]:
    async with AsyncExitStack() as stack:
        yield Tree(tmp_path, stack)


async def published(origin: Origin, path: Path, **options: Any) -> Published:
    return await (await origin.publish(path, **options)).done()


async def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits until something holds that has no event of its own."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


def holds(relay: Relay, version: Published) -> Callable[[], bool]:
    return lambda: (held := relay.catalogue.held.get(version.identifier)) is not None and held.whole


def same(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()


__all__ = ["MIB", "QUICK", "Access", "Tree", "holds", "os", "published", "same", "until", "url_of"]
