"""Getting the bytes of a decided round while the others go on."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from blake3 import blake3

from diloco.member.holding import Holding
from diloco.reduce.messages import Frame
from diloco.reduce.reduction import Signed

BYTES = b"the mean of round 3"


class Peer:
    """An endpoint's end of a peer that has the bytes."""

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, peer: str, question: Any, *, progress: timedelta) -> AsyncIterator[Frame]:
        self.asked += 1
        yield Frame(chunk=0, data=BYTES)


async def test_a_reduce_of_a_later_round_that_moves_does_not_hold_up_what_is_missing() -> None:
    peer = Peer()
    deadline = SimpleNamespace(progress=timedelta(seconds=5))
    setting: Any = SimpleNamespace(
        grid=SimpleNamespace(count=1),
        clock=lambda: 0.0,  # everything has moved just now, for ever
        genesis=SimpleNamespace(sections=SimpleNamespace(deadline=deadline)),
        endpoint=peer,
    )
    store: Any = SimpleNamespace(has=lambda value: False)
    ledger: Any = None
    holding = Holding(setting, store, ledger)
    holding._check_and_store = lambda value, plan, data: None  # type: ignore[method-assign]
    later: Any = SimpleNamespace(attempt=SimpleNamespace(epoch=0, round=7), named={}, signed={}, moved=0.0)
    holding.reduction = later
    value: Any = SimpleNamespace(epoch=0, round=3, chunks=[SimpleNamespace(digest=blake3(BYTES).digest())])
    async with asyncio.timeout(30):
        assert await holding.gather(value, None, ["someone"]) == [BYTES]  # type: ignore[list-item]
    assert peer.asked == 1


async def test_bytes_of_an_abandoned_reduce_are_kept_once_until_the_round_is_decided() -> None:
    holding = Holding(Any, Any, Any)  # type: ignore[arg-type]
    digest = blake3(BYTES).digest()

    async def close() -> None:
        return

    for attempt in range(3):
        where = SimpleNamespace(epoch=0, round=3, attempt=attempt)
        signed = {0: Signed(Frame(chunk=0, data=BYTES, header=b"header"), digest, "owner")}
        reduction: Any = SimpleNamespace(
            attempt=where, basis=b"basis", named={digest: bytes(BYTES)}, signed=signed, close=close
        )
        holding.reduction = reduction
        assert holding._named(digest) == BYTES
        await holding.abandon()
    assert holding._named(digest) == BYTES and len(holding._kept) == 1
    assert holding._named(b"another") is None
    value: Any = SimpleNamespace(chunks=[SimpleNamespace(digest=digest)])
    other: Any = SimpleNamespace(chunks=[SimpleNamespace(digest=b"another")])
    assert holding.signed(b"basis") == {0: signed[0].frame} and not holding.signed(b"another")
    assert holding.signatures(value) == signed and not holding.signatures(other)
    await holding.settle(2)
    assert holding._named(digest) == BYTES
    await holding.settle(3)
    assert holding._named(digest) is None and not holding.signed(b"basis")
