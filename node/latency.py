"""How long a small question to other members takes: each node measures it now and then, and writes it to its log.

Together the members' figures are the latency matrix of the coordinator's network page.
"""

import asyncio
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta

from diloco.member.setting import Emit
from protocol.errors import NodeError
from protocol.messages import message, request
from protocol.rpc import Context, Endpoint
from protocol.units import PeerId

EVENT = "peer.round-trips"
"""The event: ``seconds`` by peer."""

FIRST, EVERY = timedelta(seconds=10), timedelta(seconds=60)
"""Until the first time, and between two, on average."""

MOST = 32
"""Peers that are asked in one time, drawn anew each time."""

_TIMEOUT = timedelta(seconds=5)


@message("node.here", version=1, max_bytes="64 B", rate="10/s", audience="member")
class Here:
    """Yes."""


@request(
    "node.ask-there", version=1, max_bytes="64 B", rate="2/s burst 10", timeout="5 s", replies=Here,
    audience="member",
)  # fmt: skip
class AskThere:
    """Asks whether a node is there, to see how long its answer takes."""


class Latency:
    """Measures, and answers those who do.

    Args:
        endpoint: Asks.
        known: The members to which there is a way now.
        emit: The event log.
        draw: Chooses peers and times.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        known: Callable[[], Collection[PeerId]],
        emit: Emit,
        draw: random.Random | None = None,
    ) -> None:
        self._endpoint, self._known, self._emit = endpoint, known, emit
        self._draw = draw or random.Random()

    async def run(self) -> None:
        """Measure until cancelled."""
        pause = FIRST
        while True:
            await asyncio.sleep(pause.total_seconds() * self._draw.uniform(0.5, 1.5))
            await self.measure()
            pause = EVERY

    async def measure(self) -> None:
        """Ask some members, one after the other; who does not answer is left out."""
        known, loop = sorted(self._known()), asyncio.get_running_loop()
        seconds: dict[str, float] = {}
        for peer in self._draw.sample(known, min(MOST, len(known))):
            began = loop.time()
            with suppress(NodeError):
                await self._endpoint.request(peer, AskThere(), timeout=_TIMEOUT)
                seconds[peer] = round(loop.time() - began, 5)
        if seconds:
            self._emit(EVENT, seconds=seconds)

    async def on_ask(self, message: AskThere, context: Context) -> Here:
        """Answer."""
        return Here()
