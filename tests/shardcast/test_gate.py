import asyncio
from datetime import timedelta

import pytest

from protocol.errors import Code, NodeError
from shardcast.gate import Gate


async def hold(gate: Gate, peer: str, order: list[str], release: asyncio.Event) -> None:
    async with gate.admit(peer):
        order.append(peer)
        await release.wait()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_only_so_many_are_served_at_once_and_the_others_in_order_of_asking() -> None:
    gate, order, release = Gate(2), [], asyncio.Event()
    tasks = [asyncio.ensure_future(hold(gate, peer, order, release)) for peer in "abcde"]
    await settle()
    assert order == ["a", "b"] and gate.serving == 2
    release.set()
    await asyncio.gather(*tasks)
    assert order == list("abcde") and gate.most == 2 and gate.serving == 0


async def test_one_peer_cannot_take_all_places() -> None:
    gate, order, release = Gate(9, per_peer=2), [], asyncio.Event()
    tasks = [asyncio.ensure_future(hold(gate, "greedy", order, release)) for _ in range(3)]
    await settle()
    assert len(order) == 2
    release.set()
    with pytest.raises(NodeError) as caught:
        await asyncio.gather(*tasks)
    assert caught.value.code is Code.SHC_BUSY


async def test_one_who_waits_too_long_is_told_to_come_back_and_leaves_nothing_behind() -> None:
    gate, order, release = Gate(1, patience=timedelta(milliseconds=10)), [], asyncio.Event()
    first = asyncio.ensure_future(hold(gate, "a", order, release))
    await settle()
    with pytest.raises(NodeError) as caught:
        await hold(gate, "b", order, release)
    assert caught.value.code is Code.SHC_BUSY and caught.value.retriable
    release.set()
    await first
    await hold(gate, "b", order, release)
    assert order == ["a", "b"]


async def test_a_queue_has_an_end() -> None:
    gate, order, release = Gate(1, waiting=1), [], asyncio.Event()
    tasks = [asyncio.ensure_future(hold(gate, peer, order, release)) for peer in "ab"]
    await settle()
    with pytest.raises(NodeError):
        await hold(gate, "c", order, release)
    release.set()
    await asyncio.gather(*tasks)


async def test_one_who_leaves_while_waiting_or_served_gives_its_place_back() -> None:
    gate, order, release = Gate(1), [], asyncio.Event()
    tasks = [asyncio.ensure_future(hold(gate, peer, order, release)) for peer in "ab"]
    await settle()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    release.set()
    await hold(gate, "c", order, release)
    assert order == ["a", "c"]
