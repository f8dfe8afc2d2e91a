"""The messages and handlers that the tests of the data plane speak."""

import asyncio
from collections.abc import AsyncIterator

from protocol import field, message, request
from protocol.errors import Code, NodeError
from protocol.rpc import Context


@message("rpc-test.word", version=1, max_bytes="4 KiB", rate="1000/s", audience="anyone")
class Word:
    text: str = field(1)


@message("rpc-test.rare", version=1, max_bytes="4 KiB", rate="1/h burst 2", audience="member")
class Rare:
    text: str = field(1, default="")


@request("rpc-test.ask", version=1, max_bytes="4 KiB", rate="1000/s", timeout="5 s", replies=Word)
class Ask:
    text: str = field(1)


@request("rpc-test.ask-members", version=1, max_bytes="1 KiB", rate="1000/s", timeout="5 s", replies=Rare)
class AskMembers: ...


@request(
    "rpc-test.spell", version=1, max_bytes="4 KiB", rate="1000/s", timeout="5 s", replies=Word, stream=True
)
class Spell:
    text: str = field(1)


@message("rpc-test.frame", version=1, max_bytes="8 MiB", rate="1000/s", audience="anyone", plane="bulk")
class Frame:
    index: int = field(1)
    data: bytes = field(2)


@request(
    "rpc-test.pull",
    version=1,
    max_bytes="1 KiB",
    rate="1000/s",
    timeout="5 s",
    replies=Frame,
    stream=True,
    plane="bulk",
)
class Pull:
    count: int = field(1)
    size: int = field(2)


@request(
    "rpc-test.echo", version=1, max_bytes="8 MiB", rate="1000/s", timeout="5 s", replies=Frame, plane="bulk"
)
class Echo:
    data: bytes = field(1)


class Speaker:
    """Handlers, and what they have heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, Context]] = []
        self.entered = asyncio.Event()
        self.left = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def on_word(self, message: Word, context: Context) -> None:
        self.heard.append((message, context))

    async def on_rare(self, message: Rare, context: Context) -> None:
        self.heard.append((message, context))

    async def on_ask(self, message: Ask, context: Context) -> Word:
        self.heard.append((message, context))
        self.entered.set()
        try:
            await self.gate.wait()
        finally:
            self.left.set()
        if message.text == "banned":
            raise NodeError(Code.RND_BANNED, "You are banned until Monday.")
        if message.text == "bug":
            raise RuntimeError("the secret is 42")
        return Word(message.text.upper())

    async def on_ask_members(self, message: AskMembers, context: Context) -> Rare:
        return Rare("for you")

    async def on_spell(self, message: Spell, context: Context) -> AsyncIterator[Word]:
        for letter in message.text:
            yield Word(letter)
        if message.text == "bad":
            raise NodeError(Code.RND_BANNED, "No more.")

    async def on_pull(self, message: Pull, context: Context) -> AsyncIterator[Frame]:
        self.heard.append((message, context))
        try:
            for index in range(message.count):
                yield Frame(index, bytes(message.size))
                self.entered.set()
                await self.gate.wait()
        finally:
            self.left.set()

    async def on_echo(self, message: Echo, context: Context) -> Frame:
        return Frame(0, message.data)
