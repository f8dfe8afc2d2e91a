"""Messages and handlers that the tests of the swarm speak."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from protocol import field, message, request
from protocol.rpc import Context


@message("swarm-test.word", version=1, max_bytes="4 KiB", rate="100000/s", audience="anyone")
class Word:
    text: str = field(1)


@request("swarm-test.ask", version=1, max_bytes="4 KiB", rate="100000/s", timeout="5 s", replies=Word)
class Ask:
    text: str = field(1)


@request(
    "swarm-test.talk", version=1, max_bytes="4 KiB", rate="100000/s", timeout="5 s", replies=Word, stream="both"
)  # fmt: skip
class Talk:
    text: str = field(1)


@message("swarm-test.frame", version=1, max_bytes="8 MiB", rate="1000/s", audience="anyone", plane="bulk")
class Frame:
    index: int = field(1)
    data: bytes = field(2)


@request(
    "swarm-test.pull", version=1, max_bytes="1 KiB", rate="1000/s", timeout="5 s", replies=Frame, stream=True,
    plane="bulk",
)  # fmt: skip
class Pull:
    count: int = field(1)
    size: int = field(2)


class Ear:
    """Handlers, and what they have heard."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.heard: list[str] = []
        self.cancelled = 0
        self.sent = 0
        self.gate = asyncio.Event()
        self.gate.set()
        for handler in (self.on_word, self.on_ask, self.on_talk, self.on_pull):
            node.handle(handler)

    async def on_word(self, message: Word, context: Context) -> None:
        self.heard.append(message.text)

    async def on_ask(self, message: Ask, context: Context) -> Word:
        self.heard.append(message.text)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Word(message.text.upper())

    async def on_talk(self, messages: AsyncIterator[Talk], context: Context) -> AsyncIterator[Word]:
        async for each in messages:
            self.heard.append(each.text)
            yield Word(each.text.upper())

    async def on_pull(self, message: Pull, context: Context) -> AsyncIterator[Frame]:
        try:
            for index in range(message.count):
                yield Frame(index, bytes(message.size))
                self.sent = index + 1
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
