"""Real hosts in one process, each with a thread of its own, and what each of them hears."""

import asyncio
import itertools
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any

from protocol.gossip import Gossip
from protocol.gossip.carrier import HostCarrier
from protocol.identity import Identity
from protocol.rpc import Context, Endpoint
from protocol.testing import RUN
from protocol.units import Address, PeerId
from tests.protocol.gossip.words import News


def members(peer: PeerId, audience: str) -> bool:
    """An audience to which everybody belongs, except that nobody is the operator."""
    return audience != "operator"


class Node:
    """A node's gossip with its host."""

    def __init__(self, *, endpoint: Endpoint | None = None, **options: Any) -> None:
        self.identity = Identity.ephemeral() if endpoint is None else endpoint.identity
        self.me = self.identity.peer_id
        self.boot = secrets.token_bytes(16)
        self._is_member: Callable[[PeerId], bool] = options.pop("is_member", lambda peer: False)
        self.options: dict[str, Any] = {"run": RUN, "audience": members, **options}
        self.gossip = Gossip(self.identity, boot=self.boot, endpoint=endpoint, **self.options)
        self.heard: list[str] = []
        self.from_whom: list[PeerId] = []
        self._changed = asyncio.Event()
        self.carrier: HostCarrier

    async def on_news(self, message: News, context: Context) -> None:
        self.heard.append(message.text)
        self.from_whom.append(context.sender)
        self._changed.set()

    async def start(self, *, subscribes: bool = True) -> "Node":
        if subscribes:
            self.gossip.handle(self.on_news)
        self.carrier = await HostCarrier.start(
            self.identity, boot=self.boot, listen=Address("127.0.0.1", 0), receive=self.gossip.receive,
            is_member=self._is_member,
        )  # fmt: skip
        await self.gossip.start(self.carrier)
        return self

    async def stop(self) -> None:
        await self.gossip.stop()

    async def connect(self, other: "Node") -> None:
        await self.carrier.connect(other.carrier.multiaddrs[0])

    async def hears(self, *texts: str, seconds: float = 60) -> None:
        """Waits until it has heard all of them."""
        await self.until(lambda: set(texts) <= set(self.heard), seconds)

    async def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                with_timeout = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait((with_timeout,), timeout=0.05)
                with_timeout.cancel()

    @property
    def twice(self) -> list[str]:
        """What it heard more than once."""
        return [text for text, count in Counter(self.heard).items() if count > 1]


async def chain(nodes: list[Node]) -> None:
    """Connects each with the next, and waits until they pass News on."""
    for one, next_one in itertools.pairwise(nodes):
        await one.connect(next_one)
    for number, node in enumerate(nodes):
        await node.carrier.meshed("gossip-tests.news", 1 if number in (0, len(nodes) - 1) else 2)
