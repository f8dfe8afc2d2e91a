from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.protocol.gossip.scene import Node

MakeNode = Callable[..., Awaitable[Node]]


@pytest.fixture
async def node() -> AsyncIterator[MakeNode]:
    """Makes nodes with hosts; all are stopped at the end."""
    made: list[Node] = []

    async def make(*, subscribes: bool = True, **options: Any) -> Node:
        one = Node(**options)
        made.append(one)
        return await one.start(subscribes=subscribes)

    yield make
    for one in made:
        await one.stop()
