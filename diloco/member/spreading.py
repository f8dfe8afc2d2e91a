"""Passing decided values on: each member gives one to a few others, and to those of a member that does not take it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from diloco.member.setting import Setting, Tasks
from diloco.rounds.routing import Spread
from protocol.envelope import Sealed
from protocol.errors import NodeError
from protocol.units import PeerId

_TIMEOUT = timedelta(seconds=5)


class Spreading:
    """Gives decided values to this member's children in the tree of each value.

    Who gets none, because its parents died holding it, asks the peers whose signs of life are ahead of it.

    Args:
        setting: The member's setting.
        tasks: Where sending runs.
        dead: Whether a peer is believed dead.
    """

    def __init__(self, setting: Setting, tasks: Tasks, dead: Callable[[PeerId], bool]) -> None:
        self._setting, self._tasks, self._dead = setting, tasks, dead

    def pass_on(self, spread: Spread, sealed: Sealed[Any]) -> None:
        """Give a decided value to whom this member has to give it."""
        for place in spread.of(self._setting.me):
            self._tasks.spawn(self._give(spread, place, sealed), "passing a decision on")

    async def _give(self, spread: Spread, place: int, sealed: Sealed[Any]) -> None:
        peer = PeerId(spread.order[place])
        if peer != self._setting.me and not self._dead(peer):
            try:
                await self._setting.endpoint.post(peer, sealed, timeout=_TIMEOUT)
                return
            except NodeError:
                pass  # its part of the tree is not to suffer for it
        await asyncio.gather(*(self._give(spread, below, sealed) for below in spread.children(place)))
