"""What servers, networks and disks do wrong, and that a broadcast goes on all the same or ends with a reason."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from protocol.errors import Code, NodeError
from protocol.identity import Identity
from shardcast import limits
from shardcast.growth import GrowingManifest
from shardcast.header import Header
from shardcast.http.catalogue import Held
from shardcast.http.origin import Origin
from shardcast.http.source import Source
from tests.shardcast.http.conftest import MIB, Tree, holds, published, same, until, url_of

BRIEF = timedelta(seconds=2)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


# ---- clients that do no good


async def test_a_connection_that_says_nothing_is_ended_and_disturbs_nobody(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FIRST_WORD", timedelta(seconds=0.5))
    origin = await tree.origin()
    path = tree.file(2 * MIB)
    await published(origin, path)
    silent = [await asyncio.open_connection("127.0.0.1", origin.server.port) for _ in range(20)]
    half = await asyncio.open_connection("127.0.0.1", origin.server.port)
    half[1].write(b"GET /versions HTTP/1.1\r\nHost: x\r\n")
    await tree.fetch([origin])
    assert same(tree.folder / "fetched", path)
    for reader, writer in (*silent, half):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            async with asyncio.timeout(60):
                await reader.readexactly(1)
        writer.close()


async def test_a_client_has_so_many_connections_and_no_more(tree: Tree) -> None:
    from shardcast.http.door import Access

    origin = await tree.origin(access=Access(connections=3))
    opened = [await asyncio.open_connection("127.0.0.1", origin.server.port) for _ in range(4)]
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        async with asyncio.timeout(60):
            await opened[3][0].readexactly(1)
    opened[0][1].write(b"GET /versions HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await opened[0][0].readline()).split()[1] == b"200"
    for _, writer in opened:
        writer.close()


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/shards/../../etc/passwd",
        "/shards/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "//etc/passwd",
        "/manifests/" + "0" * 63 + "/",
        "/shards/" + "A" * 64,
        "/versions/x",
    ],
)
async def test_no_address_leads_out_of_what_is_served(tree: Tree, path: str) -> None:
    origin = await tree.origin()
    reader, writer = await asyncio.open_connection("127.0.0.1", origin.server.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer.split()[1] in (b"400", b"404")
    writer.close()


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../b", "a//b", "", "A", "a\0b", "x" * 200])
async def test_a_name_or_version_is_never_a_path(tree: Tree, name: str) -> None:
    origin = await tree.origin()
    path = tree.file(10)
    with pytest.raises(NodeError) as error:
        await origin.publish(path, name)
    assert error.value.code is Code.SHC_NAME
    if name:
        with pytest.raises(NodeError) as error:
            await origin.publish(path, version=name)
        assert error.value.code is Code.SHC_NAME
    with pytest.raises(NodeError) as error:
        await tree.fetch([origin], name=name)
    assert error.value.code is Code.SHC_NAME


# ---- servers that lie


@pytest.mark.failure_mode(53)
async def test_one_wrong_byte_at_one_relay_is_blamed_and_fetched_elsewhere(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(4 * MIB)
    version = await published(origin, path, shard_size=MIB)
    bad = origin.catalogue.held[version.identifier].growing.shard(2).digest.hex()
    liar = await tree.proxy(origin, lambda path, body: flipped(body) if path.endswith(bad) else body)
    fetched = await tree.fetch([liar, origin])
    assert same(tree.folder / "fetched", path)
    blamed = [error for error in fetched.refused if error.code is Code.SHC_BAD_SHARD]
    assert {error.peer for error in blamed} <= {liar}
    with pytest.raises(NodeError) as error:
        await tree.fetch([liar], "alone", patience=BRIEF)
    assert error.value.code is Code.SHC_NO_HOLDER
    assert not (tree.folder / "alone").exists()


async def test_a_relay_neither_stores_nor_completes_a_bad_shard(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(2 * MIB)
    version = await published(origin, path, shard_size=MIB)
    shards = [origin.catalogue.held[version.identifier].growing.shard(i) for i in range(2)]
    bad = shards[1].digest.hex()
    hold = asyncio.Event()

    async def liar(request: web.BaseRequest) -> web.StreamResponse:
        """Sends the second shard with a wrong first byte, and its end only when it is told to."""
        if not request.path.endswith(bad):
            raise web.HTTPTemporaryRedirect(url_of(origin) + request.path_qs)
        content = bytearray(path.read_bytes()[MIB:])
        content[0] ^= 1
        response = web.StreamResponse()
        response.content_length = MIB
        await response.prepare(request)
        await response.write(content[: MIB - 1])
        await hold.wait()
        await response.write(content[MIB - 1 :])
        return response

    def change(path: str, body: bytes) -> bytes:
        return body

    through = await tree.proxy(origin, change)

    async def both(request: web.BaseRequest) -> web.StreamResponse:
        if request.path.endswith(bad):
            return await liar(request)
        from shardcast.http.source import Link, in_thread

        link = Link(Source.parse(through), 30.0)
        body = await in_thread(link, lambda: link.text(request.path_qs, 1 << 30, wait=30))
        link.close()
        return web.Response(body=body)

    relay = await tree.relay([await tree.server(both)])
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.server.port)
    await until(lambda: bool(relay.catalogue.held) and relay.catalogue.find(shards[1].digest) is not None)
    writer.write(f"GET /shards/{bad} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    assert b" 200 " in head
    early = await asyncio.wait_for(reader.readexactly(MIB - limits.HOLD_BACK), 60)
    assert early[1:] == path.read_bytes()[MIB + 1 : 2 * MIB - limits.HOLD_BACK], (
        "bytes are passed on as they come"
    )
    hold.set()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1), 60)
    writer.close()
    held = relay.catalogue.held[version.identifier]
    assert not held.has(1)
    stored = b"".join(file.read_bytes() for file in relay.folder.glob("*.data*"))
    assert early[:64] not in stored


@pytest.mark.parametrize("cut", [0, 1, MIB // 2, MIB - 1])
async def test_a_truncated_shard_is_fetched_elsewhere(tree: Tree, cut: int) -> None:
    origin = await tree.origin()
    path = tree.file(3 * MIB)
    version = await published(origin, path, shard_size=MIB)
    bad = origin.catalogue.held[version.identifier].growing.shard(0).digest.hex()
    liar = await tree.proxy(origin, lambda path, body: body[:cut] if path.endswith(bad) else body)
    fetched = await tree.fetch([liar, origin])
    assert same(tree.folder / "fetched", path)
    assert {error.peer for error in fetched.refused} <= {liar}


@pytest.mark.parametrize(
    "forgery", ["signature", "shard", "unsigned", "garbage", "header", "other", "endless"]
)
async def test_a_forged_manifest_is_refused_and_the_next_source_taken(tree: Tree, forgery: str) -> None:
    origin = await tree.origin()
    path = tree.file(3 * MIB)
    version = await published(origin, path, shard_size=MIB)
    stranger = await tree.origin("stranger", identity=Identity.ephemeral())
    await published(stranger, tree.file(1000))
    other = bytes(next(iter(stranger.catalogue.held.values())).growing.text)

    def change(path: str, body: bytes) -> bytes:
        if not path.startswith("/manifests"):
            return body
        lines = body.splitlines(keepends=True)
        match forgery:
            case "signature":
                return b"".join(
                    line.replace(b'"signature":"', b'"signature":"00') if b'"signature":"' in line else line
                    for line in lines
                )
            case "shard":
                return body.replace(b'"blake3":"', b'"blake3":"00', 1)
            case "unsigned":
                return b"".join(line for line in lines if b'"record":"signature"' not in line)
            case "garbage":
                return os.urandom(5000)
            case "header":
                return body.replace(version.version.encode(), b"another", 1)
            case "other":
                return other
        return lines[0] + b"x" * 100_000

    liar = await tree.proxy(origin, change)
    fetched = await tree.fetch([liar, origin])
    assert same(tree.folder / "fetched", path)
    assert {error.peer for error in fetched.refused} == {liar}
    assert {error.code for error in fetched.refused} == {Code.SHC_MANIFEST}
    with pytest.raises(NodeError) as error:
        await tree.fetch([liar], "alone", patience=BRIEF)
    assert error.value.code in (Code.SHC_MANIFEST, Code.SHC_NO_HOLDER)


async def test_a_version_that_is_not_the_file_its_close_names_gives_way_to_the_one_before(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(3 * MIB)
    good = await published(origin, path, shard_size=MIB)
    header = Header("weights", "lie", 3 * MIB, MIB, author=tree.identity.peer_id, serial=good.serial + 1)
    growing = GrowingManifest.begin(header, tree.identity)
    for shard in origin.catalogue.held[good.identifier].growing.since(0):
        growing.append(shard.size, shard.digest)
    growing.close(bytes(32), tree.identity)
    held = Held(growing, path)
    held.all_arrived()
    held.whole = True
    origin.catalogue.add(held)
    fetched = await tree.fetch([origin])
    assert fetched.version == good.version and fetched.given_up == ("lie",)
    assert same(tree.folder / "fetched", path)


async def test_an_old_version_that_is_offered_again_is_not_taken_for_a_new_one(tree: Tree) -> None:
    origin = await tree.origin()
    old, new = tree.file(1000), tree.file(2000)
    await published(origin, old)
    before = json.loads((await _get(origin, "/versions"))[1])
    current = await published(origin, new)

    def replay(path: str, body: bytes) -> bytes:
        if path != "/versions":
            return body
        listed = json.loads(body)
        listed["versions"] = [dict(before["versions"][0], serial=current.serial + 10_000)]
        return json.dumps(listed).encode()

    liar = await tree.proxy(origin, replay)
    with pytest.raises(NodeError):
        await tree.fetch([liar], newer_than=current.serial - 1, patience=BRIEF)
    assert not (tree.folder / "fetched").exists()
    await tree.fetch([liar, origin], newer_than=current.serial - 1)
    assert same(tree.folder / "fetched", new)


async def test_a_list_of_nonsense_harms_nobody(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(1000)
    await published(origin, path)
    texts = [b"", b"[]", b"\xff" * 1000, b"[" * 100_000, b'{"cursor": 1, "versions": []}']
    entry = {"object": "../../x", "name": "../x", "version": "/", "serial": -1, "size": 1 << 60}
    texts.append(json.dumps({"cursor": "a", "versions": [entry, None, 7, {}] * 1000}).encode())
    liars = []
    for text in texts:

        async def handler(request: web.BaseRequest, text: bytes = text) -> web.StreamResponse:
            return web.Response(body=text)

        liars.append(await tree.server(handler))
    await tree.fetch([*liars, origin])
    assert same(tree.folder / "fetched", path)


# ---- servers that go


@pytest.mark.failure_mode(17)
async def test_a_relay_that_is_killed_at_half_costs_nothing(tree: Tree) -> None:
    origin = await tree.origin()
    relays = [await tree.relay([origin], f"relay{i}") for i in range(2)]
    path = tree.file(16 * MIB)
    version = await published(origin, path, shard_size=MIB)
    for relay in relays:
        await until(holds(relay, version))
    half = asyncio.Event()
    fetch = asyncio.create_task(
        tree.fetch(relays, progress=lambda now: half.set() if now.shards >= 8 else None)
    )
    await half.wait()
    await relays[0].stop()
    await fetch
    assert same(tree.folder / "fetched", path)


@pytest.mark.failure_mode(17)
async def test_four_clients_at_once_all_finish_though_a_relay_is_killed_meanwhile(tree: Tree) -> None:
    origin = await tree.origin()
    relays = [await tree.relay([origin], f"relay{i}") for i in range(3)]
    path = tree.file(12 * MIB)
    version = await published(origin, path, shard_size=MIB // 2)
    for relay in relays:
        await until(holds(relay, version))
    await origin.stop()
    begun = [asyncio.Event() for _ in range(4)]
    fetches = [
        asyncio.create_task(tree.fetch(relays, f"fetched{i}", progress=lambda now, i=i: begun[i].set()))  # type: ignore[misc]
        for i in range(4)
    ]
    await asyncio.gather(*(event.wait() for event in begun))
    await relays[0].stop()
    await asyncio.gather(*fetches)
    assert all(same(tree.folder / f"fetched{i}", path) for i in range(4))


async def test_the_only_server_is_killed_and_started_again(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(16 * MIB)
    await published(origin, path, shard_size=MIB)
    port = origin.server.port
    half = asyncio.Event()
    fetch = asyncio.create_task(
        tree.fetch([origin], progress=lambda now: half.set() if now.shards >= 4 else None, parallel=1)
    )
    await half.wait()
    await origin.stop()
    assert not fetch.done()
    await tree.origin(port=port)
    fetched = await fetch
    assert same(tree.folder / "fetched", path)
    assert fetched.bytes + fetched.resumed >= 16 * MIB
    assert fetched.bytes < 20 * MIB, "what was there is not fetched again"


async def test_relays_list_and_serve_while_the_origin_is_away(tree: Tree) -> None:
    origin = await tree.origin()
    first = await tree.relay([origin], "first")
    path = tree.file(3 * MIB)
    version = await published(origin, path, shard_size=MIB)
    await until(holds(first, version))
    await origin.stop()
    second = await tree.relay([first], "second")
    await tree.fetch([second])
    assert same(tree.folder / "fetched", path)


async def test_an_origin_with_an_empty_folder_uses_no_version_again(tree: Tree) -> None:
    origin = await tree.origin()
    relay = await tree.relay([origin])
    old = await published(origin, tree.file(1000))
    await until(holds(relay, old))
    port = origin.server.port
    await origin.stop()
    again = await tree.origin("emptied", port=port)
    new = tree.file(2000)
    version = await published(again, new)
    assert version.identifier != old.identifier and version.version != old.version
    assert version.serial > old.serial
    await until(holds(relay, version))
    await again.stop()
    await tree.fetch([relay])
    assert same(tree.folder / "fetched", new)


async def test_a_clock_that_was_set_back_does_not_set_serials_back(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = await tree.origin()
    first = await published(origin, tree.file(1000))
    now = asyncio.get_running_loop().time
    monkeypatch.setattr("shardcast.http.origin.time.time_ns", lambda: int(now()))
    second = await published(origin, tree.file(2000))
    await origin.stop()
    origin = await tree.origin()
    third = await published(origin, tree.file(3000))
    assert first.serial < second.serial < third.serial
    assert (await tree.fetch([origin])).serial == third.serial


@pytest.mark.failure_mode(54)
async def test_servers_that_cannot_be_reached_at_the_start_prevent_nothing(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(3 * MIB)
    await published(origin, path, shard_size=MIB)
    away = [url_of(1), "http://host.invalid:80", url_of(2)]
    relay = await tree.relay([*away, origin])
    fetched = await tree.fetch([*away, relay])
    assert same(tree.folder / "fetched", path)
    assert set(fetched.per_source) == {url_of(relay)}


async def test_servers_that_are_all_away_are_an_error_in_bounded_time(tree: Tree) -> None:
    with pytest.raises(NodeError) as error:
        await tree.fetch([url_of(1), url_of(2)], patience=BRIEF)
    assert error.value.code is Code.SHC_NO_HOLDER
    assert error.value.retriable


# ---- versions that come and go


@pytest.mark.failure_mode(13)
async def test_a_newer_version_changes_nothing_for_who_reads_the_older(tree: Tree) -> None:
    origin = await tree.origin(keep=1)
    old = tree.file(8 * MIB)
    first = await published(origin, old, shard_size=MIB)
    begun = asyncio.Event()
    fetch = asyncio.create_task(tree.fetch([origin], progress=lambda now: begun.set(), parallel=1))
    await begun.wait()
    new = tree.file(1000)
    second = await published(origin, new)
    old.unlink()
    assert first.identifier in origin.catalogue.held, "it is being read"
    assert (await fetch).serial == first.serial
    assert (await tree.fetch([origin], "newest")).serial == second.serial
    assert same(tree.folder / "newest", new)


async def test_versions_beyond_those_kept_go_once_nobody_reads_them(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = await tree.origin(keep=10)
    relay = await tree.relay([origin], keep=2)
    versions = [await published(origin, tree.file(10_000)) for _ in range(3)]
    await until(lambda: all(v.identifier in relay.catalogue.held for v in versions[1:]))
    monkeypatch.setattr(limits, "READ_RECENTLY", timedelta(0))
    await until(lambda: set(relay.catalogue.held) == {v.identifier for v in versions[1:]})
    assert {file.name.split(".")[0] for file in relay.folder.iterdir()} - {""} == set(relay.catalogue.held)


async def test_a_relay_stays_within_its_budget_and_keeps_the_newest(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READ_RECENTLY", timedelta(0))
    origin = await tree.origin()
    relay = await tree.relay([origin], budget=5 * MIB)
    versions = [await published(origin, tree.file(2 * MIB)) for _ in range(4)]
    await published(origin, tree.file(6 * MIB), name="too-large")
    await until(holds(relay, versions[-1]))
    await until(lambda: len(relay.catalogue.held) <= 2)
    assert sum(file.stat().st_size for file in relay.folder.glob("*.data")) <= 5 * MIB


@pytest.mark.failure_mode(53)
async def test_a_shard_that_is_missing_for_ever_costs_bounded_time_and_the_next_version_is_taken(
    tree: Tree,
) -> None:
    origin = await tree.origin()
    old, new = tree.file(3 * MIB), tree.file(3 * MIB)
    first = await published(origin, old, shard_size=MIB)
    second = await published(origin, new, shard_size=MIB)
    gone = origin.catalogue.held[second.identifier].growing.shard(1).digest.hex()
    holey = await tree.proxy(origin, lambda path, body: None if path.endswith(gone) else body)
    fetched = await tree.fetch([holey], patience=timedelta(seconds=1))
    assert fetched.serial == first.serial
    assert fetched.given_up == (second.version,)
    assert same(tree.folder / "fetched", old)


@pytest.mark.failure_mode(44)
async def test_a_version_without_its_close_is_never_loaded(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(2 * MIB)
    publication = await origin.publish(path, size=3 * MIB, shard_size=MIB)
    await until(lambda: origin.catalogue.held[publication.identifier].growing.count == 2)
    with pytest.raises(NodeError) as error:
        await tree.fetch([origin], patience=BRIEF)
    assert error.value.code is Code.SHC_NO_HOLDER
    assert not (tree.folder / "fetched").exists()
    relay = await tree.relay([origin])
    await until(lambda: publication.identifier in relay.catalogue.held)
    await relay.stop()
    await origin.stop()
    relay = await tree.relay([origin])
    assert relay.catalogue.held == {}, "a relay lists nothing that it has not to its end"


async def test_a_publication_whose_file_never_ends_gives_way_to_the_version_before(tree: Tree) -> None:
    origin = await tree.origin()
    old = tree.file(2 * MIB)
    before = await published(origin, old, shard_size=MIB)
    await origin.publish(tree.file(MIB), size=2 * MIB, shard_size=MIB)
    fetched = await tree.fetch([origin], patience=timedelta(seconds=1))
    assert fetched.serial == before.serial
    assert same(tree.folder / "fetched", old)


# ---- sizes


async def test_a_version_has_100001_shards(tree: Tree) -> None:
    origin = await tree.origin()
    count = 100_001
    path = tree.file(count)
    version = await published(origin, path, shard_size=1)
    assert origin.catalogue.held[version.identifier].growing.count == count
    content = bytearray(path.read_bytes())
    for index in (0, 50_000, 100_000):
        content[index] ^= 255
    (tree.folder / "fetched.part").write_bytes(content)  # all but three of them came in an earlier start
    fetched = await tree.fetch([origin], patience=timedelta(seconds=60))
    assert fetched.resumed == count - 3
    assert 3 <= fetched.bytes <= 6, "one that is late may be asked of two connections"
    assert same(tree.folder / "fetched", path)


@pytest.mark.soak
async def test_a_file_of_5_gb_that_is_mostly_holes(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.folder / "sparse"
    with path.open("wb") as file:
        file.truncate(5_000_000_000)
        file.seek(3_000_000_000)
        file.write(b"not a hole")
    relay = await tree.relay([origin])
    await origin.publish(path)
    await tree.fetch([relay], patience=timedelta(seconds=120))
    fetched = tree.folder / "fetched"
    assert fetched.stat().st_size == 5_000_000_000
    with fetched.open("rb") as file:
        file.seek(3_000_000_000)
        assert file.read(11) == b"not a hole\0"
    for stored in (fetched, *relay.folder.glob("*.data")):
        assert stored.stat().st_blocks * 512 < 100 * MIB, "holes stay holes"


# ---- disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_full_disk_at_a_client_is_an_error_that_says_so(tree: Tree, small_disk: Path) -> None:
    origin = await tree.origin()
    await published(origin, tree.file(6 * MIB), shard_size=MIB)
    with pytest.raises(NodeError) as error:
        await tree.fetch([origin], "small/fetched")
    assert error.value.code is Code.STO_FULL
    (small_disk / "fetched.part").unlink(missing_ok=True)
    path = tree.file(3 * MIB)
    await published(origin, path)
    await tree.fetch([origin], "small/fetched")
    assert same(small_disk / "fetched", path)


async def test_a_full_disk_at_a_relay_costs_that_version_only(tree: Tree, small_disk: Path) -> None:
    origin = await tree.origin()
    told: list[NodeError] = []
    relay = await tree.relay([origin], "small/relay", tell=told.append)
    await published(origin, tree.file(6 * MIB), shard_size=MIB)
    await until(lambda: any(error.code is Code.STO_FULL for error in told))
    path = tree.file(2 * MIB)
    version = await published(origin, path)
    await until(holds(relay, version))
    await tree.fetch([relay])
    assert same(tree.folder / "fetched", path)


async def test_a_folder_that_cannot_be_written_is_an_error_that_says_so(tree: Tree) -> None:
    blocked = tree.file(1, "blocked")
    with pytest.raises(NodeError) as error:
        await tree.relay([], "blocked/relay")
    assert error.value.code is Code.STO_UNWRITABLE
    with pytest.raises(NodeError) as error:
        await tree.origin("blocked/origin")
    assert error.value.code is Code.STO_UNWRITABLE
    origin = await tree.origin()
    await published(origin, tree.file(1000))
    with pytest.raises(NodeError) as error:
        await tree.fetch([origin], "blocked/fetched")
    assert error.value.code is Code.STO_UNWRITABLE
    assert blocked.read_bytes()


async def test_two_nodes_on_one_host_share_nothing(tree: Tree) -> None:
    origin = await tree.origin()
    with pytest.raises(NodeError) as error:
        await tree.origin()
    assert error.value.code is Code.STO_LOCKED
    with pytest.raises(NodeError) as error:
        await tree.origin("other", port=origin.server.port)
    assert error.value.code is Code.NET_PORT_IN_USE
    relays = [await tree.relay([origin], f"relay{i}") for i in range(2)]
    path = tree.file(3 * MIB)
    await published(origin, path, shard_size=MIB)
    await asyncio.gather(*(tree.fetch([relay], f"fetched{i}") for i, relay in enumerate(relays)))
    assert same(tree.folder / "fetched0", path) and same(tree.folder / "fetched1", path)


# ---- slowness


@pytest.mark.failure_mode(53)
async def test_a_source_of_one_byte_a_second_holds_nobody_up(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(4 * MIB)
    await published(origin, path, shard_size=MIB)
    slow = await _slow(tree, origin)
    fetched = await tree.fetch([slow, origin])
    assert same(tree.folder / "fetched", path)
    assert fetched.per_source == {url_of(origin): 4 * MIB}
    with pytest.raises(NodeError) as error:
        await tree.fetch([slow], "alone", silence=timedelta(seconds=0.5), patience=timedelta(seconds=3))
    assert error.value.code is Code.SHC_NO_HOLDER


async def _slow(tree: Tree, origin: Origin) -> str:
    through = await tree.proxy(origin, lambda path, body: body)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        from shardcast.http.source import Link, in_thread

        link = Link(Source.parse(through), 30.0)
        body = await in_thread(link, lambda: link.text(request.path_qs, 1 << 30, wait=30))
        link.close()
        if not request.path.startswith("/shards"):
            return web.Response(body=body)
        response = web.StreamResponse()
        response.content_length = len(body)
        await response.prepare(request)
        for index in range(len(body)):
            await response.write(body[index : index + 1])
            await asyncio.sleep(1.0)
        return response

    return await tree.server(handler)


async def _get(origin: Origin, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", origin.server.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body
