"""Other people's software in the tree: a client written from the documentation alone, and nginx as a relay."""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shardcast.http.conftest import MIB, Tree, holds, published, same, until, url_of

CLIENT = Path(__file__).with_name("foreign_client.py")
PAGE = Path(__file__).parents[3] / "docs" / "shardcast.md"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")


async def foreign(tree: Tree, *urls: str) -> None:
    arguments = (tree.identity.peer_id, "weights", str(tree.folder / "fetched"), *urls)
    process = await asyncio.create_subprocess_exec(sys.executable, str(CLIENT), *arguments)
    async with asyncio.timeout(60):
        assert await process.wait() == 0


def test_the_foreign_client_is_short_and_imports_nothing_of_ours() -> None:
    text = CLIENT.read_text()
    assert not re.search(r"^\s*(from|import) (shardcast|protocol|node|tests)\b", text, re.MULTILINE)
    assert len(text.splitlines()) <= 130


async def test_a_client_from_the_documentation_fetches_a_version(tree: Tree) -> None:
    origin = await tree.origin()
    relay = await tree.relay([origin])
    path = tree.file(5 * MIB + 7)
    await published(origin, tree.file(100))
    version = await published(origin, path, shard_size=MIB)
    await until(holds(relay, version))
    await foreign(tree, url_of(1), url_of(relay), url_of(origin))
    assert same(tree.folder / "fetched", path)


async def test_a_client_from_the_documentation_fetches_while_the_file_is_written(tree: Tree) -> None:
    origin = await tree.origin()
    content = tree.file(3 * MIB).read_bytes()
    path = tree.folder / "growing"
    path.write_bytes(content[:MIB])
    publication = await origin.publish(path, size=3 * MIB, shard_size=MIB)
    fetch = asyncio.create_task(foreign(tree, url_of(origin)))
    await until(lambda: bool(origin.server._asking))
    with path.open("ab") as file:
        file.write(content[MIB:])
    await publication.done()
    await fetch
    assert (tree.folder / "fetched").read_bytes() == content


async def test_a_client_from_the_documentation_survives_liars(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(3 * MIB)
    await published(origin, path, shard_size=MIB)

    def spoil(path: str, body: bytes) -> bytes:
        if path.startswith("/shards"):
            return body[:-1] + bytes([body[-1] ^ 1])
        return (
            body.replace(b'"signature":"', b'"signature":"00', 1) if path.startswith("/manifests") else body
        )

    liar = await tree.proxy(origin, spoil)
    await foreign(tree, liar, url_of(origin))
    assert same(tree.folder / "fetched", path)


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator["Nginx"]:
    """Debian's nginx with the configuration that the documentation shows."""
    if NGINX is None:
        pytest.skip("nginx is not installed (Debian's package nginx-light)")
    server = Nginx(tmp_path / "nginx")
    yield server
    server.stop()


class Nginx:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            self.port = held.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, upstream: str) -> str:
        (shown,) = re.findall(r"```\n(proxy_cache_path.*?)```", PAGE.read_text(), re.DOTALL)
        shown = shown.replace("/var/cache/shardcast", f"{self.folder}/cache").replace(
            "max_size=200g", "max_size=1g"
        )
        shown = shown.replace("listen 8002", f"listen 127.0.0.1:{self.port}")
        shown = shown.replace("http://203.0.113.7:8000", upstream)
        assert upstream in shown and str(self.port) in shown
        paths = "".join(
            f"{kind}_temp_path {self.folder}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (self.folder / "nginx.conf").write_text(
            f"daemon off; pid {self.folder}/pid; error_log {self.folder}/error.log; worker_processes 1;\n"
            f"{'user root;' if os.geteuid() == 0 else ''}\n"
            f"events {{ worker_connections 256; }}\n"
            f"http {{ access_log {self.folder}/access.log; {paths} {shown} }}\n"
        )
        assert NGINX is not None
        self.process = subprocess.Popen(
            [NGINX, "-c", str(self.folder / "nginx.conf"), "-p", str(self.folder)]
        )
        url = f"http://127.0.0.1:{self.port}"
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return url
                except OSError:
                    assert self.process.poll() is None, (self.folder / "error.log").read_text()
                    await asyncio.sleep(0.02)

    def asked(self, what: str) -> int:
        return (self.folder / "access.log").read_text().count(f"GET /{what}")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


async def test_a_broadcast_goes_through_nginx_as_a_relay(tree: Tree, nginx: Nginx) -> None:
    origin = await tree.origin()
    through = await nginx.start(url_of(origin))
    path = tree.file(6 * MIB)
    publication = await origin.publish(path, size=6 * MIB, shard_size=MIB)
    fetched = await tree.fetch([through])
    await publication.done()
    assert same(tree.folder / "fetched", path)
    assert set(fetched.per_source) == {through}
    sent = origin.server.sent
    for again in range(2):
        await tree.fetch([through], f"again{again}")
        assert same(tree.folder / f"again{again}", path)
    assert origin.server.sent == sent, "nginx serves shards from its cache"
    assert nginx.asked("shards") >= 18

    relay = await tree.relay([through])
    newer = tree.file(2 * MIB)
    version = await published(origin, newer)
    await until(holds(relay, version))
    await tree.fetch([relay])
    assert same(tree.folder / "fetched", newer)


async def test_what_nginx_has_is_served_while_the_origin_is_away(tree: Tree, nginx: Nginx) -> None:
    origin = await tree.origin()
    through = await nginx.start(url_of(origin))
    path = tree.file(3 * MIB)
    await published(origin, path, shard_size=MIB)
    await tree.fetch([through])
    (tree.folder / "fetched").unlink()
    relay = await tree.relay([origin])
    await until(lambda: bool(relay.catalogue.held) and next(iter(relay.catalogue.held.values())).whole)
    await origin.stop()
    fetched = await tree.fetch([through, relay])
    assert same(tree.folder / "fetched", path)
    assert url_of(relay) in fetched.per_source
