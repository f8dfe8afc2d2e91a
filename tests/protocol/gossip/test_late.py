"""Those who come late, or were cut off, get what they missed by asking a peer."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from protocol.gossip import topics
from protocol.gossip.judging import Judgement
from protocol.testing import local_endpoints
from protocol.units import PeerId
from tests.protocol.gossip.scene import Node
from tests.protocol.gossip.words import News, Rumour


class NoCarrier:
    """A carrier without a single neighbour."""

    async def join(self, topic: str) -> None:
        pass

    async def publish(self, topic: str, raw: bytes) -> None:
        pass

    async def stop(self) -> None:
        pass


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_SOON", 0.05)


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes that can ask each other and have no neighbours."""
    async with local_endpoints(2) as (one, other):
        nodes = (
            Node(endpoint=one, peers=lambda: [other.peer_id]),
            Node(endpoint=other, peers=lambda: [one.peer_id]),
        )
        yield nodes
        for node in nodes:
            await node.stop()


async def start(node: Node) -> None:
    node.gossip.handle(node.on_news)
    await node.gossip.start(NoCarrier())


async def test_a_late_subscriber_hears_what_was_said_before_in_order(pair: tuple[Node, Node]) -> None:
    early, late = pair
    await start(early)
    for number in range(20):
        await early.gossip.publish(News(text=str(number)))
    await start(late)
    await late.hears(*map(str, range(20)))
    assert late.heard == [str(number) for number in range(20)]
    assert set(late.from_whom) == {early.me}


async def test_what_it_has_is_not_sent_again(pair: tuple[Node, Node]) -> None:
    early, late = pair
    await start(early)
    said = [await early.gossip.publish(News(text=str(number))) for number in range(3)]
    await start(late)
    await late.hears("0", "1", "2")
    assert late.gossip.receive("gossip-tests.news", said[1].raw, early.me).judgement is Judgement.IGNORE
    late.gossip.ask_soon()
    await early.gossip.publish(News(text="3"))
    await late.hears("3")
    assert late.heard == ["0", "1", "2", "3"]
    assert late.gossip.counts["late"] == 4


async def test_a_topic_subscribed_to_later_is_asked_for_too(pair: tuple[Node, Node]) -> None:
    early, late = pair
    heard = asyncio.Event()

    async def on_rumour(message: Rumour, context: object) -> None:
        heard.set()

    await start(early)
    early.gossip.handle(on_rumour_of_no_interest)
    await start(late)
    await early.gossip.publish(Rumour(text="long ago"))
    late.gossip.handle(on_rumour)
    await asyncio.wait_for(heard.wait(), 60)


async def on_rumour_of_no_interest(message: Rumour, context: object) -> None:
    pass


async def test_a_peer_that_does_not_answer_or_answers_with_rubbish_harms_nobody() -> None:
    async with local_endpoints(3) as (liar, honest, late):
        false, true = Node(endpoint=liar), Node(endpoint=honest)
        asking = Node(endpoint=late, peers=lambda: [PeerId("nobody"), liar.peer_id, honest.peer_id])
        await start(true)
        sealed = await true.gossip.publish(News(text="true"))
        false.gossip._history.add("gossip-tests.news", changed(sealed))
        await start(asking)
        for _ in range(60):  # two of the three are asked each time
            asking.gossip.ask_soon()
            try:
                await asking.hears("true", seconds=1)
                break
            except TimeoutError:
                continue
        assert asking.heard == ["true"]
        for node in (false, true, asking):
            await node.stop()


def changed(sealed: object) -> object:
    """The envelope with one bit of its signature changed."""
    raw = sealed.raw  # type: ignore[attr-defined]
    return dataclasses.replace(sealed, raw=raw[:5] + bytes([raw[5] ^ 1]) + raw[6:])  # type: ignore[type-var]


async def test_a_handler_that_is_slow_loses_the_oldest_and_one_that_fails_goes_on(
    pair: tuple[Node, Node],
) -> None:
    speaker, listener = pair
    await start(speaker)
    gate, taken = asyncio.Event(), asyncio.Event()
    heard: list[str] = []

    async def slow(message: News, context: object) -> None:
        taken.set()
        await gate.wait()
        heard.append(message.text)
        if message.text == "0":
            raise RuntimeError("a handler's own fault")

    listener.gossip.handle(slow)
    await listener.gossip.start(NoCarrier())
    for number in range(400):
        sealed = await speaker.gossip.publish(News(text=str(number)))
        listener.gossip.receive("gossip-tests.news", sealed.raw, speaker.me)
        if number == 0:
            await asyncio.wait_for(taken.wait(), 60)
    await asyncio.sleep(0)
    gate.set()
    async with asyncio.timeout(60):
        while "399" not in heard:
            await asyncio.sleep(0.01)
    assert heard[0] == "0" and len(heard) == 257
    assert listener.gossip.counts["lost"] == 400 - 257
