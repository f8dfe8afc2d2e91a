"""One attempt's reduce at one member, towards those who pull from it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from diloco.reduce.gathering import Attempt
from diloco.reduce.reduction import Reduction
from diloco.rounds.roster import Plan
from protocol.errors import Code, NodeError


async def test_who_waits_for_a_chunk_is_told_when_the_reduce_ends() -> None:
    plan = Plan(base=b"", roster=(), owners=("anna",), readys={})
    setting: Any = SimpleNamespace(me="bert", note=lambda kind, **fields: None)
    reduction = Reduction(setting, Attempt(0, 3, 0, "anna", plan), None, lambda order: None)

    async def pull() -> list[Any]:
        return [frame async for frame in reduction.serve((0,), wait=True)]

    waiting = asyncio.ensure_future(pull())
    await asyncio.sleep(0)
    assert not waiting.done()
    await reduction.close()
    async with asyncio.timeout(60):
        with pytest.raises(NodeError) as caught:
            await waiting
    assert caught.value.code is Code.NET_TIMEOUT
