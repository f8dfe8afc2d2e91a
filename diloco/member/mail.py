"""Sending statements: each peer has its own short queue, so a slow one delays nobody; what is undecided is repeated."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from diloco.member.setting import REPEAT, Setting, Tasks
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from protocol.units import PeerId

_QUEUE = 64
_TIMEOUT = timedelta(seconds=10)
_PATIENCE = (
    8  # a delivered statement is first repeated after this part of an attempt's length, then ever more rarely
)


@dataclass
class _Told:
    """A peer has a statement, or it is on its way; ``due`` is when it gets it again, ``gap`` the seconds after that."""

    due: float
    gap: float


class Mail:
    """Delivers statements to peers. Used from one event loop.

    A peer that took a statement may still have had no use for it, because it was in another round or attempt. So what
    is undecided is repeated: at once when a peer has moved on, and else after pauses that double.

    Args:
        setting: The member's setting.
        tasks: Where senders run.
    """

    def __init__(self, setting: Setting, tasks: Tasks) -> None:
        self._setting, self._tasks = setting, tasks
        self._queues: dict[PeerId, asyncio.Queue[Any]] = {}
        self._undecided: dict[type[Any], Sealed[Any]] = {}
        self._told: dict[PeerId, dict[type[Any], _Told]] = {}
        self._gap = max(REPEAT, setting.timing.attempt / _PATIENCE).total_seconds()

    def say(self, sealed: Sealed[Any], peers: Iterable[PeerId]) -> None:
        """Send a statement of an undecided round, and keep it for ``repeat``; a later one of its kind replaces it."""
        kind = type(sealed.message)
        self._undecided[kind] = sealed
        for told in self._told.values():
            told.pop(kind, None)
        for peer in peers:
            self._say(peer, kind)

    def repeat(self, peers: Iterable[PeerId]) -> None:
        """Send what is due of the undecided round again."""
        now = self._setting.clock()
        for peer in peers:
            queue = self._queues.get(peer)
            if queue is not None and not queue.empty():
                continue  # it takes nothing now
            told = self._told.setdefault(peer, {})
            for kind in self._undecided:
                if kind not in told or told[kind].due <= now:
                    self._say(peer, kind)

    def again(self, peer: PeerId) -> None:
        """A peer came back or moved on: it gets everything at the next ``repeat``."""
        self._told.pop(peer, None)

    def settle(self) -> None:
        """The round is decided: nothing of it is repeated any more."""
        self._undecided.clear()
        self._told.clear()

    def _say(self, peer: PeerId, kind: type[Any]) -> None:
        told = self._told.setdefault(peer, {})
        gap = 2 * told[kind].gap if kind in told else self._gap
        told[kind] = _Told(self._setting.clock() + gap, gap)
        self.tell(peer, self._undecided[kind])

    def tell(self, peer: PeerId, message: Any) -> None:
        """Queue a statement or an addressed message; dropped when the peer takes nothing."""
        queue = self._queues.get(peer)
        if queue is None:
            queue = self._queues[peer] = asyncio.Queue(_QUEUE)
            self._tasks.spawn(self._deliver(peer, queue), f"mail to {peer}")
        if queue.full():
            self._missed(peer, queue.get_nowait())
        queue.put_nowait(message)

    def _missed(self, peer: PeerId, message: Any) -> None:
        """A peer did not get a message: if it is undecided, ``repeat`` sends it."""
        if isinstance(message, Sealed) and self._undecided.get(type(message.message)) is message:
            self._told.get(peer, {}).pop(type(message.message), None)

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
                self._missed(peer, message)
                if error.code not in (Code.NET_UNREACHABLE, Code.NET_TIMEOUT, Code.NET_UNTRUSTED):
                    self._setting.emit(
                        "message.refused", peer=peer, message=type(message).__name__, code=str(error.code),
                        reason=error.sentence,
                    )  # fmt: skip
