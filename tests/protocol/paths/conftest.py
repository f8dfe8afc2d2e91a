import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from protocol.paths.pipe import Duplex

Pair = Callable[[], Awaitable[tuple[Duplex, Duplex]]]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Makes two ends of one connection."""
    made: list[Duplex] = []

    async def make() -> tuple[Duplex, Duplex]:
        ends = [
            Duplex(*await asyncio.open_connection(sock=end, limit=1 << 16)) for end in socket.socketpair()
        ]
        made.extend(ends)
        return ends[0], ends[1]

    yield make
    for end in made:
        end.close()
