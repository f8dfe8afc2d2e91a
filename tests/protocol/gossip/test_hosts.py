"""Real libp2p hosts in a chain, each connected only with the next."""

import asyncio

from protocol.errors import Code
from protocol.rpc import Context
from protocol.units import PeerId
from tests.protocol.gossip.conftest import MakeNode
from tests.protocol.gossip.scene import chain
from tests.protocol.gossip.words import News, Rumour


async def test_a_message_reaches_everyone_along_a_chain_of_six_hosts_once(node: MakeNode) -> None:
    nodes = [await node() for _ in range(6)]
    await chain(nodes)
    await nodes[0].gossip.publish(News(text="from one end"))
    await nodes[5].gossip.publish(News(text="from the other end"))
    await nodes[3].gossip.publish(News(text="from within"))
    for number, each in enumerate(nodes):
        expected = {"from one end": 0, "from the other end": 5, "from within": 3}
        expected = {text: who for text, who in expected.items() if who != number}
        await each.hears(*expected)
        assert sorted(each.heard) == sorted(expected)
        assert {nodes[expected[text]].me for text in each.heard} == set(each.from_whom)


async def test_what_a_node_may_not_take_it_does_not_pass_on_and_its_neighbour_is_not_to_blame(
    node: MakeNode,
) -> None:
    admitted: set[PeerId] = set()
    newcomer, strict, friend = (
        await node(),
        await node(audience=lambda peer, _: peer in admitted),
        await node(),
    )
    admitted.add(friend.me)
    await chain([newcomer, strict, friend])
    await newcomer.gossip.publish(News(text="not yet admitted"))
    await strict.until(lambda: strict.gossip.counts[str(Code.NET_AUDIENCE)] == 1)
    await friend.gossip.publish(News(text="from a member"))
    await newcomer.hears("from a member")
    assert strict.heard == ["from a member"] and friend.heard == []
    assert all(one.score >= 0 for one in await strict.carrier.neighbours())
    admitted.add(newcomer.me)
    await newcomer.gossip.publish(News(text="admitted"))
    await friend.hears("admitted")
    assert friend.heard == ["admitted"]


async def test_more_than_a_topics_rate_is_not_passed_on(node: MakeNode) -> None:
    nodes = [await node() for _ in range(3)]
    heard: list[str] = []
    taken = asyncio.Event()

    async def on_rumour(message: Rumour, context: Context) -> None:
        heard.append(message.text)

    async def of_no_interest(message: Rumour, context: Context) -> None:
        taken.set()

    for each, handler in zip(nodes, (of_no_interest, of_no_interest, on_rumour), strict=True):
        each.gossip.handle(handler)
    await chain(nodes)
    for number, each in enumerate(nodes):
        await each.carrier.meshed("gossip-tests.rumour", 2 if number == 1 else 1)
    for number in range(6):  # two a minute are allowed
        await nodes[0].gossip.publish(Rumour(text=str(number)))
    await nodes[1].until(lambda: nodes[1].gossip.counts[str(Code.NET_RATE)] == 4)
    await nodes[0].gossip.publish(News(text="the last word"))
    await nodes[2].hears("the last word")
    assert heard == ["0", "1"] and nodes[2].gossip.counts[str(Code.NET_RATE)] == 0
