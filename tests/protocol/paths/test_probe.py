import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.identity import Identity
from protocol.paths.limits import MAX_QUESTION
from protocol.paths.probe import CallBack, ask, data_plane, directory_port
from protocol.tls import TlsIdentity, make_certificate
from tests.protocol.paths.conftest import Pair

PEER = Identity.ephemeral(b"a" * 32).peer_id


@pytest.fixture
def tls() -> TlsIdentity:
    return make_certificate(PEER)


@pytest.fixture
async def data_port(tls: TlsIdentity, tmp_path: Path) -> AsyncIterator[int]:
    (tmp_path / "pem").write_bytes(tls.key_pem + tls.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture
async def greeting_port() -> AsyncIterator[int]:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x13/multistream/1.0.0\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_a_data_plane_is_known_by_its_certificate(
    data_port: int, tls: TlsIdentity, greeting_port: int
) -> None:
    assert await data_plane("127.0.0.1", data_port, tls.fingerprint) == ""
    assert await data_plane("127.0.0.1", data_port, bytes(32)) == "somebody else answers there"
    assert await data_plane("127.0.0.1", greeting_port, tls.fingerprint) != ""
    assert "refused" in await data_plane("127.0.0.1", 1, tls.fingerprint)


async def test_a_directory_is_known_by_its_greeting(greeting_port: int, data_port: int) -> None:
    assert await directory_port("127.0.0.1", greeting_port) == ""
    assert await directory_port("127.0.0.1", data_port) != ""
    assert "refused" in await directory_port("127.0.0.1", 1)


async def test_a_question_is_answered(
    pair: Pair, data_port: int, greeting_port: int, tls: TlsIdentity
) -> None:
    near, far = await pair()
    answering = asyncio.ensure_future(CallBack(lambda: 0.0, relay=True).answer(PEER, "127.0.0.1", far))
    seen = await ask("me", near, data=data_port, directory=greeting_port, fingerprint=tls.fingerprint)
    assert (seen.by, seen.host, seen.data, seen.directory, seen.relay) == ("me", "127.0.0.1", "", "", True)
    await answering


async def test_nobody_is_called_back_for_a_question_that_came_through_a_relay(
    pair: Pair, data_port: int
) -> None:
    near, far = await pair()
    answering = asyncio.ensure_future(CallBack(lambda: 0.0, relay=False).answer(PEER, None, far))
    seen = await ask("me", near, data=data_port, directory=data_port, fingerprint=bytes(32))
    assert seen.host == "" and "relay" in seen.data
    await answering


@pytest.mark.parametrize(
    "line",
    [
        b"\n", b"[]\n", b"{}\n", b"x" * (MAX_QUESTION + 1) + b"\n", b"[" * 500 + b"\n", b"\xff\n",
        json.dumps({"data": 0, "directory": 1, "fingerprint": ""}).encode() + b"\n",
        json.dumps({"data": True, "directory": 1, "fingerprint": ""}).encode() + b"\n",
        json.dumps({"data": 1, "directory": 1, "fingerprint": "zz"}).encode() + b"\n",
    ],
)  # fmt: skip
async def test_a_bad_question_gets_no_answer(pair: Pair, line: bytes) -> None:
    near, far = await pair()
    answering = asyncio.ensure_future(CallBack(lambda: 0.0, relay=False).answer(PEER, "127.0.0.1", far))
    near.writer.write(line)
    near.writer.write_eof()
    assert await near.reader.read() == b""
    await answering


async def test_a_bad_answer_is_refused(pair: Pair) -> None:
    for line in (b"{}\n", b"[]\n", b'{"host": 7}\n', b""):
        near, far = await pair()
        far.writer.write(line)
        far.writer.write_eof()
        with pytest.raises(ValueError):
            await ask("me", near, data=1, directory=1, fingerprint=bytes(32))


async def test_one_peer_is_answered_only_so_often(pair: Pair) -> None:
    now = [0.0]
    call_back = CallBack(lambda: now[0], relay=False)
    got = []
    for when in (0.0, 1.0, 1.9, 2.0, 3.0):
        now[0] = when
        near, far = await pair()
        near.writer.write(json.dumps({"data": 1, "directory": 1, "fingerprint": "00"}).encode() + b"\n")
        await call_back.answer(PEER, "127.0.0.1", far)
        try:
            got.append(await near.reader.read() != b"")
        except ConnectionResetError:  # it was not even read
            got.append(False)
    assert got == [True, False, False, True, False], "what is refused does not count"
