"""Six real libp2p hosts, each connected only with the next."""

from tests.protocol.gossip.conftest import MakeNode
from tests.protocol.gossip.scene import chain
from tests.protocol.gossip.words import News


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
