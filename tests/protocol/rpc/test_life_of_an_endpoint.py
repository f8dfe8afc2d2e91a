"""Starting, stopping, dying, standing still: each noticed, and nothing left behind."""

import asyncio
import gc
import socket
from datetime import timedelta

import pytest

from protocol import limits
from protocol.errors import Code
from protocol.testing import local_endpoints, make_node
from protocol.units import Address
from tests.protocol.rpc.conftest import Pair, serve
from tests.protocol.rpc.instruments import Wire, refusal
from tests.protocol.rpc.words import Ask, Speaker, Spell, Word


async def test_a_port_in_use_is_one_clear_error(pair: Pair) -> None:
    assert pair.server.address is not None
    second = make_node(listen=pair.server.address)
    error = await refusal(second.start())
    assert error.code is Code.NET_PORT_IN_USE
    assert str(pair.server.address.port) in error.sentence
    await second.stop()


async def test_an_address_of_another_machine_is_one_clear_error() -> None:
    node = make_node(listen=Address("192.0.2.1", 0))
    assert (await refusal(node.start())).code is Code.NET_UNREACHABLE


async def test_a_dead_peer_is_unreachable_at_once_and_again(pair: Pair) -> None:
    await pair.server.stop()
    async with asyncio.timeout(60):  # the declared time-out alone would be 5 s for each call
        for _ in range(20):
            assert (
                await refusal(pair.caller.request(pair.server.peer_id, Ask("x")))
            ).code is Code.NET_UNREACHABLE


async def test_a_peer_that_accepts_and_says_nothing_is_unreachable(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT", timedelta(milliseconds=200))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address("127.0.0.1", silent.getsockname()[1])
        pair.caller.trust.learn(pair.server.peer_id, pair.server.tls.certificate_pem, (address,))
        call = pair.caller.request(pair.server.peer_id, Ask("x"), timeout=timedelta(minutes=1))
        assert (await refusal(call)).code is Code.NET_UNREACHABLE


async def test_a_call_to_a_peer_whose_process_stands_still_ends_without_its_deadline(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEEPALIVE_CONTROL", timedelta(milliseconds=200))
    async with Wire(pair.server) as wire:
        pair.caller.trust.learn(pair.server.peer_id, pair.server.tls.certificate_pem, (wire.address,))
        assert await pair.caller.request(pair.server.peer_id, Ask("x")) == Word("X")
        wire.flows.clear()
        call = pair.caller.request(pair.server.peer_id, Ask("x"), timeout=timedelta(minutes=1))
        assert (await refusal(call)).code is Code.NET_UNREACHABLE


async def test_a_call_under_way_ends_when_the_peer_stops(pair: Pair) -> None:
    pair.speaker.gate.clear()
    task = asyncio.ensure_future(pair.caller.request(pair.server.peer_id, Ask("x")))
    await pair.speaker.entered.wait()
    await pair.server.stop()
    assert (await refusal(task)).code is Code.NET_UNREACHABLE
    assert pair.speaker.left.is_set()


async def test_a_call_under_way_may_end_within_the_grace(pair: Pair) -> None:
    pair.speaker.gate.clear()
    task = asyncio.ensure_future(pair.caller.request(pair.server.peer_id, Ask("x")))
    await pair.speaker.entered.wait()
    stopping = asyncio.ensure_future(pair.server.stop(timedelta(seconds=30)))
    await asyncio.sleep(0)
    pair.speaker.gate.set()
    assert await task == Word("X")
    await stopping


async def test_a_call_of_a_stopped_endpoint_ends_with_an_error(pair: Pair) -> None:
    pair.speaker.gate.clear()
    task = asyncio.ensure_future(pair.caller.request(pair.server.peer_id, Ask("x")))
    await pair.speaker.entered.wait()
    await pair.caller.stop()
    assert (await refusal(task)).code is Code.NET_UNREACHABLE
    assert (await refusal(pair.caller.request(pair.server.peer_id, Ask("x")))).code is Code.NET_UNREACHABLE


async def test_stopping_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    async with local_endpoints(3) as (one, two, three):
        speaker = Speaker()
        serve(two, speaker)
        speaker.gate.clear()
        calls = [asyncio.ensure_future(one.request(two.peer_id, Ask("x"))) for _ in range(5)]
        stream = two.stream(three.peer_id, Spell("abc"))
        await speaker.entered.wait()
        two.trust.forget(three.peer_id)
        await two.stop()
        await two.stop()
        await asyncio.gather(*calls, return_exceptions=True)
        await stream.aclose()
    gc.collect()
    assert asyncio.all_tasks() - before == set()
