"""What a hostile peer may send: each is refused with a reason, in bounded memory and time, and nobody else notices."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest

from protocol import limits
from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.messages.registry import Plane
from protocol.rpc import Endpoint
from protocol.rpc.channel import METHOD_PREFIX, Link
from protocol.testing import RUN, local_endpoints
from tests.protocol.rpc.conftest import serve
from tests.protocol.rpc.instruments import refusal
from tests.protocol.rpc.words import Ask, Pull, Speaker, Word

MINUTE = timedelta(minutes=1)


class Scene:
    """A server, a trusted peer that turns hostile, and one that has nothing to do with it."""

    def __init__(self, server: Endpoint, hostile: Endpoint, honest: Endpoint, speaker: Speaker) -> None:
        self.server, self.hostile, self.honest, self.speaker = server, hostile, honest, speaker

    def link(self, plane: Plane = Plane.CONTROL) -> Link:
        return self.hostile._links.to(self.server.peer_id, plane)

    async def says(self, name: str, raw: bytes, plane: Plane = Plane.CONTROL) -> NodeError:
        return await refusal(self.link(plane).unary(name, raw, 1, MINUTE))

    async def others_are_served(self) -> None:
        assert await self.honest.request(self.server.peer_id, Ask("x")) == Word("X")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with local_endpoints(3) as (server, hostile, honest):
        speaker = Speaker()
        serve(server, speaker)
        made = Scene(server, hostile, honest, speaker)
        await made.others_are_served()
        yield made
        await made.others_are_served()


def sealed(scene: Scene, message: Any) -> bytes:
    return seal(
        scene.hostile.identity, RUN, message, recipient=scene.server.peer_id, boot=b"b" * 16, sequence=1
    ).raw


async def test_garbage_and_truncated_envelopes_are_refused(scene: Scene) -> None:
    whole = sealed(scene, Ask("x"))
    pieces = [
        b"",
        b"\x00",
        secrets.token_bytes(300),
        b"\xff" * 300,
        *(whole[:cut] for cut in range(0, 330, 37)),
    ]
    for raw in pieces:
        assert (await scene.says("rpc-test.ask", raw)).code in (
            Code.WIRE_MALFORMED,
            Code.WIRE_SIGNATURE,
            Code.WIRE_DOMAIN,
        )
    assert (await scene.says("rpc-test.ask", whole + b"x")).code is Code.WIRE_SIGNATURE


async def test_oversized_messages_are_refused_at_both_bounds(scene: Scene) -> None:
    beyond_the_message = bytes(2**16)
    beyond_the_plane = bytes(limits.MAX_BULK + limits.FRAME_SLACK + 1)
    assert (await scene.says("rpc-test.ask", beyond_the_message)).code is Code.WIRE_TOO_LARGE
    assert (await scene.says("rpc-test.pull", beyond_the_message, Plane.BULK)).code is Code.WIRE_TOO_LARGE
    call = hostile_channel(scene).unary_unary(METHOD_PREFIX + "rpc-test.echo")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(beyond_the_plane)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def hostile_channel(scene: Scene, **more: Any) -> grpc.aio.Channel:
    """A connection without our own limits on what is sent."""
    assert scene.server.address is not None
    tls = scene.hostile.tls
    return grpc.aio.secure_channel(
        str(scene.server.address),
        grpc.ssl_channel_credentials(scene.server.tls.certificate_pem, tls.key_pem, tls.certificate_pem),
        options=[
            ("grpc.ssl_target_name_override", scene.server.peer_id),
            ("grpc.use_local_subchannel_pool", 1),
        ],
        **more,
    )


async def test_a_decompression_bomb_is_not_inflated(scene: Scene) -> None:
    channel = hostile_channel(scene, compression=grpc.Compression.Gzip)
    call = channel.unary_unary(METHOD_PREFIX + "rpc-test.echo")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(bytes(2**25))  # a few kilobytes on the wire
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "gzip" in (caught.value.details() or "")
    await channel.close()


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (
            bytes([9 << 3 | 3]) * 100_000,
            Code.WIRE_TOO_LARGE,
        ),  # as deep as the message may be long, and deeper
        (bytes([9 << 3 | 3]) * 1_000, Code.WIRE_MALFORMED),
        (b"\x0a\xff\xff\xff\xff\x0f", Code.WIRE_MALFORMED),  # a length of 2**32 - 1
        (b"\x0a\x80\x80\x80\x80\x08", Code.WIRE_MALFORMED),  # of 2**31
        (b"\x08" + b"\xff" * 10 + b"\x01", Code.WIRE_MALFORMED),  # a varint of eleven bytes
        (b"\xff\xff\xff\xff\xff\x01", Code.WIRE_MALFORMED),  # a field beyond the last number
        (b"\x08\x05\x10", Code.WIRE_MALFORMED),
    ],
)
async def test_broken_encodings_are_refused_on_the_bulk_plane(scene: Scene, raw: bytes, code: Code) -> None:
    name = "rpc-test.pull"
    error = await refusal(_first(await scene.link(Plane.BULK).open(name, raw, 1, MINUTE, None)))
    assert error.code is code
    assert scene.speaker.heard == [heard for heard in scene.speaker.heard if not isinstance(heard[0], Pull)]


async def _first(stream: Any) -> Any:
    try:
        return await stream.read()
    finally:
        stream.close()


@pytest.mark.parametrize("payload", [b"\x0a\x02\xff\xfe", b"\x0a\x7f", bytes([9 << 3 | 3]) * 1_000])
async def test_a_good_signature_makes_no_bad_payload_good(
    scene: Scene, payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("protocol.envelope.encode", lambda message: payload)
        raw = sealed(scene, Ask("x"))
    assert (await scene.says("rpc-test.ask", raw)).code is Code.WIRE_MALFORMED


async def test_unknown_messages_are_named_as_such(scene: Scene) -> None:
    for name in ("rpc-test.nothing", "x" * 5000, "../../etc", ""):
        assert (await scene.says(name, b"")).code is Code.NET_UNKNOWN_MESSAGE


async def test_bytes_that_are_no_tls_harm_nobody(scene: Scene) -> None:
    assert scene.server.address is not None
    for noise in (
        b"\x00" * 4096,
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        secrets.token_bytes(9999),
    ):
        reader, writer = await asyncio.open_connection(*scene.server.address)
        writer.write(noise)
        while await _some(reader):  # until it is closed
            pass
        writer.close()


async def _some(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65_536)
    except ConnectionError:
        return b""


async def test_a_connection_that_trickles_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT", timedelta(milliseconds=100))
    async with local_endpoints(1) as (server,):
        assert server.address is not None
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"\x16\x03\x01\x02")  # the beginning of a TLS hello, and then nothing
        assert await _some(reader) == b""
        writer.close()


async def test_questions_that_never_come_whole_take_only_the_places_of_their_peer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = hostile_channel(scene).stream_unary(METHOD_PREFIX + "rpc-test.ask")
    calls = [method() for _ in range(limits.MAX_CALLS_PER_PEER)]
    await asyncio.gather(*(call.wait_for_connection() for call in calls))
    while len(scene.server.desk.running) < len(calls):
        await asyncio.sleep(0.01)
    assert (await scene.says("rpc-test.ask", sealed(scene, Ask("x")))).code is Code.NET_BUSY
    await scene.others_are_served()
    for call in calls:
        call.cancel()
    while scene.server.desk.running:
        await asyncio.sleep(0.01)


async def test_a_question_that_never_comes_whole_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALL", timedelta(milliseconds=100))
    async with local_endpoints(3) as (server, hostile, honest):
        serve(server, Speaker())
        scene = Scene(server, hostile, honest, Speaker())
        call = hostile_channel(scene).stream_unary(METHOD_PREFIX + "rpc-test.ask")()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert dict(caught.value.trailing_metadata() or ())["intellect-code"] == Code.NET_TIMEOUT
        assert not server.desk.running
        await scene.others_are_served()


async def test_a_peer_that_never_reads_is_given_up_and_holds_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALL", timedelta(milliseconds=300))
    async with local_endpoints(3) as (server, hostile, honest):
        speaker = Speaker()
        serve(server, speaker)
        scene = Scene(server, hostile, honest, speaker)
        stream = hostile.stream(server.peer_id, Pull(10_000, 2**20))
        await anext(stream)
        process = psutil.Process()
        before = process.memory_info().rss
        await scene.others_are_served()
        await speaker.left.wait()
        assert process.memory_info().rss - before < 64 * 2**20
        await stream.aclose()


async def test_a_flood_of_false_signatures_is_refused_unread_and_its_peer_alone_pays(scene: Scene) -> None:
    verified = 0
    real = scene.server.verifier

    def counting(peer: Any, data: bytes, signature: bytes) -> bool:
        nonlocal verified
        verified += 1
        return real(peer, data, signature)

    scene.server.verifier = counting
    raw = bytearray(sealed(scene, Ask("x")))
    raw[5] ^= 1
    codes = [(await scene.says("rpc-test.ask", bytes(raw))).code for _ in range(2 * limits.STRANGER_BURST)]
    assert set(codes) == {Code.WIRE_SIGNATURE, Code.NET_RATE}
    assert verified < 1.5 * limits.STRANGER_BURST
    assert (await scene.says("rpc-test.ask", sealed(scene, Ask("x")))).code is Code.NET_RATE
    await scene.others_are_served()


async def test_a_forgotten_peers_flood_is_counted_by_its_address(scene: Scene) -> None:
    await scene.hostile.request(scene.server.peer_id, Ask("x"))
    scene.server.trust.forget(scene.hostile.peer_id)
    raw = sealed(scene, Ask("x"))
    codes = [(await scene.says("rpc-test.ask", raw)).code for _ in range(limits.STRANGER_BURST + 20)]
    assert codes[0] is Code.NET_UNTRUSTED
    assert codes[-1] is Code.NET_RATE
    await scene.others_are_served()  # from the same address, but known


async def test_connections_beyond_the_bound_are_closed_and_those_before_it_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 3)
    async with local_endpoints(3) as (server, hostile, honest):
        speaker = Speaker()
        serve(server, speaker)
        scene = Scene(server, hostile, honest, speaker)
        await scene.others_are_served()
        assert server.address is not None
        opened = [await asyncio.open_connection(*server.address) for _ in range(5)]
        for reader, _ in opened[2:]:
            assert await _some(reader) == b""
        await scene.others_are_served()
        for _, writer in opened:
            writer.close()
