"""Sending statements: each peer has its own short queue, so a slow one delays nobody; what is undecided is repeated."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from diloco.member.setting import Setting, Tasks
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from protocol.units import PeerId

_QUEUE = 64
_TIMEOUT = timedelta(seconds=10)


class Mail:
    """Delivers statements to peers. Used from one event loop.

    Args:
        setting: The member's setting.
        tasks: Where senders run.
    """

    def __init__(self, setting: Setting, tasks: Tasks) -> None:
        self._setting, self._tasks = setting, tasks
        self._queues: dict[PeerId, asyncio.Queue[Any]] = {}
        self._undecided: dict[type[Any], Sealed[Any]] = {}

    def say(self, sealed: Sealed[Any], peers: Iterable[PeerId]) -> None:
        """Send a statement of an undecided round, and keep it for ``repeat``; a later one of its kind replaces it."""
        self._undecided[type(sealed.message)] = sealed
        for peer in peers:
            self.tell(peer, sealed)

    def repeat(self, peers: Iterable[PeerId]) -> None:
        """Send everything of the undecided round again."""
        for peer in peers:
            queue = self._queues.get(peer)
            if queue is None or queue.empty():
                for sealed in self._undecided.values():
                    self.tell(peer, sealed)

    def settle(self) -> None:
        """The round is decided: nothing of it is repeated any more."""
        self._undecided.clear()

    def tell(self, peer: PeerId, message: Any) -> None:
        """Queue a statement or an addressed message; dropped when the peer takes nothing."""
        queue = self._queues.get(peer)
        if queue is None:
            queue = self._queues[peer] = asyncio.Queue(_QUEUE)
            self._tasks.spawn(self._deliver(peer, queue), f"mail to {peer}")
        if queue.full():
            queue.get_nowait()
        queue.put_nowait(message)

    async def _deliver(self, peer: PeerId, queue: "asyncio.Queue[Any]") -> None:
        endpoint = self._setting.endpoint
        while True:
            message = await queue.get()
            try:
                if isinstance(message, Sealed):
                    await endpoint.post(peer, message, timeout=_TIMEOUT)
                else:
                    await endpoint.send(peer, message, timeout=_TIMEOUT)
            except NodeError as error:
                if error.code not in (Code.NET_UNREACHABLE, Code.NET_TIMEOUT, Code.NET_UNTRUSTED):
                    self._setting.emit(
                        "message.refused", peer=peer, message=type(message).__name__, code=str(error.code),
                        reason=error.sentence,
                    )  # fmt: skip
