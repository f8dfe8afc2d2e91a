"""What tests of the data plane need besides endpoints: an expected refusal, a free port, a wire that can stop."""

import asyncio
import socket
from typing import Any, Self

import pytest

from protocol.errors import NodeError
from protocol.rpc import Endpoint
from protocol.units import Address


async def refusal(call: Any) -> NodeError:
    """The error that a call ends with."""
    with pytest.raises(NodeError) as caught:
        await call
    return caught.value


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Wire:
    """A way to an endpoint that can stop passing bytes on, as a stopped process does, with its connections open."""

    def __init__(self, server: Endpoint) -> None:
        assert server.address is not None
        self._behind = server.address
        self.flows = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.flows.set()
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._behind)
        self._tasks += [
            asyncio.ensure_future(self._copy(reader, far_writer)),
            asyncio.ensure_future(self._copy(far_reader, writer)),
        ]

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            await self.flows.wait()
            target.write(data)
        target.close()

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server.close()
