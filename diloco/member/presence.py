"""Who is alive: heartbeats out, signs of life in, all on this member's own monotonic clock."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from diloco.member.messages import Goodbye, Heartbeat
from diloco.member.setting import Setting
from protocol.errors import Code, NodeError
from protocol.rpc import Context
from protocol.units import PeerId

_REFUSALS_TO_DEATH = 2


class Presence:
    """Tells the member who came and who is gone.

    A peer is gone when its port refuses two heartbeats running, when it says goodbye, or when it has been silent for
    ``silence``; moving bytes count as a sign of life.

    Args:
        setting: The member's setting.
        interval: Time between heartbeats.
        silence: How long a peer may be silent.
        describe: Makes this member's heartbeat; None while there is nothing to say.
        seen: Called when a peer is alive that was not.
        gone: Called with peer and reason when one is believed dead.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        interval: timedelta,
        silence: timedelta,
        describe: Callable[[], Heartbeat | None],
        seen: Callable[[PeerId], None],
        gone: Callable[[PeerId, str], None],
    ) -> None:
        self._setting = setting
        self._interval, self._silence = interval.total_seconds(), silence.total_seconds()
        self._describe, self._on_seen, self._on_gone = describe, seen, gone
        self._last: dict[PeerId, float] = {}
        self._refused: dict[PeerId, int] = {}
        self.dead: set[PeerId] = set()
        self.heard: dict[PeerId, Heartbeat] = {}

    def alive(self, peer: PeerId) -> None:
        """A peer gave a sign of life."""
        new = peer not in self._last or peer in self.dead
        self._last[peer] = self._setting.clock()
        self._refused.pop(peer, None)
        if new:
            self.dead.discard(peer)
            self._on_seen(peer)

    def lost(self, peer: PeerId, why: str) -> None:
        """A peer is believed dead from now on."""
        if peer in self.dead:
            return
        self.dead.add(peer)
        self._on_gone(peer, why)

    def present(self) -> list[PeerId]:
        """Peers that gave a sign of life and are not believed dead."""
        return [peer for peer in self._last if peer not in self.dead]

    async def on_heartbeat(self, message: Heartbeat, context: Context) -> None:
        """Take a heartbeat."""
        self.heard[context.sender] = message
        self.alive(context.sender)

    async def on_goodbye(self, message: Goodbye, context: Context) -> None:
        """Take a goodbye."""
        self.heard.pop(context.sender, None)
        self._last.pop(context.sender, None)
        self.lost(context.sender, f"said goodbye: {message.reason}")

    async def run(self) -> None:
        """Send heartbeats and watch for silence until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                heartbeat = self._describe()
                if heartbeat is not None:
                    for peer in self._setting.peers():
                        group.create_task(self._beat(peer, heartbeat))
                now = self._setting.clock()
                for peer, last in list(self._last.items()):
                    if now - last > self._silence:
                        self.lost(peer, f"silent for {now - last:.0f} s")
                await asyncio.sleep(self._interval)

    async def _beat(self, peer: PeerId, heartbeat: Heartbeat) -> None:
        for _ in range(_REFUSALS_TO_DEATH):
            try:
                await self._setting.endpoint.send(
                    peer, heartbeat, timeout=timedelta(seconds=self._interval * 2)
                )
            except NodeError as error:
                if error.code != Code.NET_UNREACHABLE:
                    return
                self._refused[peer] = self._refused.get(peer, 0) + 1
                if self._refused[peer] >= _REFUSALS_TO_DEATH:
                    self.lost(peer, "its port refuses connections")
                    return
                await asyncio.sleep(self._interval / 4)
            else:
                self.alive(peer)
                return
