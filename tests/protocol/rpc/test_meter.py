"""Bytes as the kernel counts them."""

import socket

from protocol.rpc import SocketMeter
from protocol.testing import local_endpoints
from tests.protocol.rpc.conftest import serve
from tests.protocol.rpc.words import Pull, Speaker


def connected() -> tuple[socket.socket, socket.socket, int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
        return near, far, listener.getsockname()[1]


def test_the_meter_counts_what_was_written_to_sockets_and_keeps_it_when_they_close() -> None:
    meter = SocketMeter()
    before = meter.sent()
    near, far, _ = connected()
    with near, far:
        near.sendall(bytes(10_000))
        assert len(far.recv(10_000, socket.MSG_WAITALL)) == 10_000
        assert meter.sent() - before == 10_000
        far.sendall(bytes(500))
        near.recv(500, socket.MSG_WAITALL)
        assert meter.sent() - before == 10_500
    assert meter.sent() - before == 10_500


def test_only_the_wanted_ports_are_counted() -> None:
    near, far, port = connected()
    with near, far:
        near.sendall(bytes(100))
        far.recv(100, socket.MSG_WAITALL)
        assert SocketMeter(lambda: frozenset({port})).sent() == 100
        assert SocketMeter(lambda: frozenset({port + 1})).sent() == 0


def test_the_meter_leaves_every_descriptor_open() -> None:
    near, far, _ = connected()
    with near, far:
        for _ in range(100):
            SocketMeter().sent()
        near.sendall(b"x")
        assert far.recv(1) == b"x"


async def test_framing_and_encryption_are_counted() -> None:
    async with local_endpoints(2) as (caller, server):
        serve(server, Speaker())
        meter = SocketMeter(lambda: frozenset({server.address.port if server.address else 0}))
        before = meter.sent()
        payload = sum([len(frame.data) async for frame in caller.stream(server.peer_id, Pull(10, 100_000))])
        counted = meter.sent() - before
        assert payload < counted < payload * 1.1
