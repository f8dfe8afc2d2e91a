"""A server's answers, byte by byte, as caches, proxies and other people's clients see them."""

import asyncio
import gc
import json
import os
import socket
import ssl
import struct
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest

from protocol.errors import Code, NodeError
from shardcast import limits
from shardcast.http.carrier import _Transfer
from shardcast.http.door import Access, networks
from shardcast.http.origin import Origin
from shardcast.piece import Piece
from tests.shardcast.http.conftest import MIB, Tree, holds, published, same, until, url_of


class Answer:
    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        self.status = int(status.split()[1])
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}


async def ask(origin: Origin, path: str, method: str = "GET", **headers: str) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", origin.server.port)
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    async with asyncio.timeout(40):
        raw = await reader.read()
    writer.close()
    return Answer(raw)


async def one_shard(tree: Tree, **options: Access) -> tuple[Origin, bytes, str]:
    origin = await tree.origin(**options)
    path = tree.file(MIB)
    version = await published(origin, path)
    digest = origin.catalogue.held[version.identifier].growing.shard(0).digest.hex()
    return origin, path.read_bytes(), f"/shards/{digest}"


async def test_a_shard_is_immutable_to_every_cache(tree: Tree) -> None:
    origin, content, path = await one_shard(tree)
    answer = await ask(origin, path)
    assert (answer.status, answer.body) == (200, content)
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["etag"] == f'"{path.rpartition("/")[2]}"'
    assert answer.headers["content-length"] == str(MIB)
    assert answer.headers["accept-ranges"] == "bytes"
    again = await ask(origin, path, If_None_Match=answer.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    head = await ask(origin, path, "HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(MIB))


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-", 5, MIB),
        ("bytes=100-199", 100, 200),
        (f"bytes=10-{MIB * 9}", 10, MIB),
    ],
)
async def test_a_range_of_a_shard_is_that_range(tree: Tree, asked: str, start: int, end: int) -> None:
    origin, content, path = await one_shard(tree)
    answer = await ask(origin, path, Range=asked)
    assert (answer.status, answer.body) == (206, content[start:end])
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{MIB}"


async def test_ranges_that_cannot_be_are_refused_and_other_ones_ignored(tree: Tree) -> None:
    origin, content, path = await one_shard(tree)
    for asked in (f"bytes={MIB}-", "bytes=9-3"):
        assert (await ask(origin, path, Range=asked)).status == 416
    for asked in ("bytes=0-1,5-6", "lines=1-2", "bytes=-5"):
        assert (await ask(origin, path, Range=asked)).body == content
    assert (await ask(origin, path, Range="bytes=5-", If_Range='"other"')).body == content


async def test_a_list_is_held_back_until_it_changes(tree: Tree) -> None:
    origin = await tree.origin()
    first = await ask(origin, "/versions")
    assert first.headers["cache-control"] == "no-store"
    cursor = json.loads(first.body)["cursor"]
    waiting = asyncio.create_task(ask(origin, f"/versions?after={cursor}&wait=20"))
    await until(lambda: bool(origin.server._asking))
    assert not waiting.done()
    version = await published(origin, tree.file(1000))
    listed = json.loads((await waiting).body)
    assert listed["versions"][0]["object"] == version.identifier
    assert listed["cursor"] != cursor


async def test_a_manifest_comes_from_a_byte_on_and_is_immutable_once_it_is_closed(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(2 * MIB)
    publication = await origin.publish(path, size=3 * MIB, shard_size=MIB)
    await until(lambda: origin.catalogue.held[publication.identifier].growing.count == 2)
    address = f"/manifests/{publication.identifier}"
    early = await ask(origin, address)
    assert early.headers["cache-control"] == "no-store"
    waiting = asyncio.create_task(ask(origin, f"{address}?from={len(early.body)}&wait=20"))
    await until(lambda: bool(origin.server._asking))
    with path.open("ab") as file:
        file.write(bytes(MIB))
    rest = (await waiting).body
    await publication.done()
    whole = await ask(origin, address)
    assert whole.body.startswith(early.body + rest)
    assert "immutable" in whole.headers["cache-control"]
    assert (await ask(origin, f"{address}?from={len(whole.body)}&wait=20")).body == b""
    assert (await ask(origin, f"{address}?from={len(whole.body) + 1}")).status == 416
    assert (await ask(origin, f"{address}?from=x")).status == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_nothing_but_reading_is_possible(tree: Tree, method: str) -> None:
    origin = await tree.origin()
    assert (await ask(origin, "/versions", method)).status == 405


async def test_a_token_is_wanted_where_there_is_one(tree: Tree) -> None:
    access = Access(tokens=("first-token", "second-token"))
    origin, content, path = await one_shard(tree, access=access)
    assert (await ask(origin, path)).status == 401
    assert (await ask(origin, path, Authorization="Bearer wrong")).status == 401
    answer = await ask(origin, path, Authorization="Bearer second-token")
    assert answer.body == content
    assert answer.headers["cache-control"].startswith("private"), "a cache must not give it to others"
    with pytest.raises(NodeError) as error:
        await tree.fetch([origin])
    assert error.value.code is Code.SHC_ACCESS
    await tree.fetch([origin], token="first-token")
    assert (tree.folder / "fetched").read_bytes() == content


async def test_only_networks_that_are_allowed_are_let_in(tree: Tree) -> None:
    origin, _, path = await one_shard(tree, access=Access(allow=networks(["192.0.2.0/24"])))
    assert (await ask(origin, path)).status == 403
    assert (await ask(origin, path, X_Forwarded_For="192.0.2.7")).status == 403, (
        "nobody says who it is by itself"
    )
    behind = Access(allow=networks(["192.0.2.0/24"]), proxies=networks(["127.0.0.0/8"]))
    other = await tree.origin("other", access=behind)
    await published(other, tree.folder / "file1")
    assert (await ask(other, path, X_Forwarded_For="192.0.2.7")).status == 200
    assert (await ask(other, path, X_Forwarded_For="192.0.2.7, 198.51.100.1")).status == 403
    assert (await ask(other, path)).status == 403


async def test_a_clients_bytes_are_paced(tree: Tree) -> None:
    origin, content, path = await one_shard(tree, access=Access(rate=2 * MIB))
    loop = asyncio.get_running_loop()
    began = loop.time()
    answers = await asyncio.gather(*(ask(origin, path) for _ in range(3)))
    assert [answer.body for answer in answers] == [content] * 3
    assert loop.time() - began > 0.9, "3 MiB at 2 MiB/s, a quarter of a second ahead"


async def test_requests_beyond_a_clients_share_are_told_to_come_back(tree: Tree) -> None:
    origin = await tree.origin(access=Access(connections=4))
    cursor = json.loads((await ask(origin, "/versions")).body)["cursor"]
    held = [asyncio.create_task(ask(origin, f"/versions?after={cursor}&wait=20")) for _ in range(3)]
    await until(lambda: origin.server._asking["127.0.0.1"] == 3)
    assert (await ask(origin, "/versions")).status == 200
    await published(origin, tree.file(10))
    assert {(await task).status for task in held} == {200}


async def test_a_relay_says_that_a_shard_is_not_there_yet(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NOT_YET", timedelta(seconds=0.1))
    origin = await tree.origin()
    version = await published(origin, tree.file(2 * MIB), shard_size=MIB)
    gone = origin.catalogue.held[version.identifier].growing.shard(1).digest.hex()
    holey = await tree.proxy(origin, lambda path, body: None if path.endswith(gone) else body)
    relay = await tree.relay([holey])
    await until(lambda: version.identifier in relay.catalogue.held)
    await until(lambda: relay.catalogue.held[version.identifier].has(0))
    answer = await ask(relay, f"/shards/{gone}")  # type: ignore[arg-type]
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.headers["cache-control"] == "no-store"


async def test_a_damaged_shard_at_a_relay_is_noticed_before_it_is_sent_and_the_version_fetched_again(
    tree: Tree,
) -> None:
    origin = await tree.origin()
    relay = await tree.relay([origin])
    path = tree.file(2 * MIB)
    version = await published(origin, path, shard_size=MIB)
    await until(holds(relay, version))
    await relay.stop()
    data = relay.folder / f"{version.identifier}.data"
    with data.open("r+b") as file:
        file.seek(MIB + 5)
        file.write(b"damage")
    told: list[NodeError] = []
    relay = await tree.relay([origin], tell=told.append)
    digest = relay.catalogue.held[version.identifier].growing.shard(1).digest.hex()
    assert (await ask(relay, f"/shards/{digest}")).status != 200  # type: ignore[arg-type]
    assert [error.code for error in told] == [Code.STO_CORRUPT]
    await until(holds(relay, version))
    await tree.fetch([relay])
    assert same(tree.folder / "fetched", path)


async def test_a_client_keeps_its_connections_from_shard_to_shard(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = await tree.origin()
    path = tree.file(MIB)
    version = await published(origin, path, shard_size=MIB // 16)
    assert origin.catalogue.held[version.identifier].growing.count == 16
    door, entered = origin.server._door, 0
    enter, fetch = door.enter, _Transfer._fetch

    def count(transport: asyncio.Transport) -> asyncio.Protocol | None:
        nonlocal entered
        entered += 1
        return enter(transport)

    def late(transfer: _Transfer, piece: Piece) -> None:
        fetch(transfer, piece)
        time.sleep(0.005)  # the event loop has heard of the shard before the thread ends

    door.enter = count  # type: ignore[method-assign]
    monkeypatch.setattr(_Transfer, "_fetch", late)
    await tree.fetch([origin])
    assert same(path, tree.folder / "fetched")
    assert entered <= limits.HTTP_LANES + 2, (
        "one for the list and one for the manifest beside those for shards"
    )


async def test_everything_works_over_tls(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    origin = await tree.origin()
    path = tree.file(3 * MIB)
    await published(origin, path, shard_size=MIB)
    await origin.server.stop()
    await origin.server.start("127.0.0.1", 0, context)
    url = url_of(origin).replace("http://", "https://")
    with pytest.raises(NodeError) as error:
        await tree.fetch([url], patience=timedelta(seconds=1))
    assert "certificate" in error.value.sentence
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    await tree.fetch([url])
    assert same(tree.folder / "fetched", path)


async def test_a_servers_memory_does_not_grow_with_the_file(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.folder / "large"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(os.urandom(MIB))
    await published(origin, path)
    held = next(iter(origin.catalogue.held.values()))
    assert len(held.growing.text) < 5000
    assert not held.pieces


@pytest.mark.parametrize("rate", [0.0, 1e9])
@pytest.mark.parametrize("rudely", [False, True])
async def test_clients_that_leave_amid_a_shard_are_no_error_of_the_server(
    tree: Tree, own_log: pytest.LogCaptureFixture, rate: float, rudely: bool
) -> None:
    loop, wrong = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: wrong.append(context))
    origin = await tree.origin(access=Access(rate=rate))
    version = await published(origin, tree.file(48 * MIB), shard_size=48 * MIB)
    held = origin.catalogue.held[version.identifier]
    path = f"/shards/{held.growing.shard(0).digest.hex()}"
    for _ in range(8):
        reader, writer = await asyncio.open_connection("127.0.0.1", origin.server.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readexactly(MIB)
        assert held.being_read
        if rudely:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        await until(lambda: not origin.server._asking)
    gc.collect()
    await asyncio.sleep(0)
    assert not wrong and not [record for record in own_log.records if record.levelname == "ERROR"]
