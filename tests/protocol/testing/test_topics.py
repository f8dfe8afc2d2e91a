"""Topics in memory: the real gossip over a network that loses, doubles and corrupts."""

import asyncio
from datetime import timedelta

from protocol import field, topic
from protocol.rpc import Context
from protocol.testing import Conditions, Host, Swarm
from protocol.testing.fixtures import virtual


@topic("swarm-test.news", version=1, max_bytes="1 KiB", rate="100/s", audience="anyone")
class News:
    text: str = field(1)


class Reader:
    def __init__(self, node: Host) -> None:
        self.read: list[str] = []
        node.handle(self.on_news)

    async def on_news(self, message: News, context: Context) -> None:
        self.read.append(message.text)


@virtual
async def test_what_one_publishes_reaches_everyone_once(swarm: Swarm) -> None:
    nodes = swarm.nodes(20)
    readers = [Reader(node) for node in nodes]
    await nodes[3].publish(News("extra"))
    await asyncio.sleep(1)
    assert [reader.read for number, reader in enumerate(readers) if number != 3] == [["extra"]] * 19


@virtual
async def test_what_was_lost_or_published_before_is_asked_for(swarm: Swarm) -> None:
    swarm.network.conditions = Conditions(loss=0.2, corruption=0.1, duplication=0.1)
    nodes = swarm.nodes(8)
    readers = [Reader(node) for node in nodes]
    for number in range(20):
        await nodes[0].publish(News(str(number)))
        await asyncio.sleep(0.5)
    late = Reader(swarm.node())
    await asyncio.sleep(timedelta(minutes=10).total_seconds())
    for reader in (*readers[1:], late):
        assert sorted(reader.read, key=int) == [str(number) for number in range(20)]
