"""Who is alive: heartbeats out, signs of life in, all on this member's own monotonic clock."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from diloco.member.messages import Goodbye, Heartbeat
from diloco.member.setting import Setting
from protocol.errors import Code, NodeError
from protocol.rpc import Context
from protocol.units import PeerId

_REFUSALS_TO_DEATH = 2
_LOOK = timedelta(milliseconds=250)


class Listener(Protocol):
    """The member whose presence this is."""

    def heartbeat(self) -> Heartbeat | None:
        """What it says now; None while there is nothing to say."""
        ...

    def seen(self, peer: PeerId) -> None:
        """A peer is alive that was not."""
        ...

    def moved(self, peer: PeerId) -> None:
        """A peer came to another round or attempt."""
        ...

    def gone(self, peer: PeerId, why: str) -> None:
        """A peer is believed dead."""
        ...


class Presence:
    """Tells the member who came and who is gone.

    A member tells those of its circle that it lives; who is told and has another circle answers. A peer is gone when
    its port refuses two heartbeats running, when it says goodbye, or when it has been silent for ``silence``; moving
    bytes count as a sign of life.

    Args:
        setting: The member's setting.
        interval: Time between heartbeats.
        silence: How long a peer may be silent.
        listener: The member.
        circle: To whom it gives signs of life unasked.
        expects: Whether a peer that is silent ought to give signs of life.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        interval: timedelta,
        silence: timedelta,
        listener: Listener,
        circle: Callable[[], Collection[PeerId]],
        expects: Callable[[PeerId], bool],
    ) -> None:
        self._setting, self._listener = setting, listener
        self._circle, self._expects = circle, expects
        self._interval, self._silence = interval.total_seconds(), silence.total_seconds()
        self._last: dict[PeerId, float] = {}
        self._refused: dict[PeerId, int] = {}
        self._asked: set[PeerId] = set()
        self.dead: set[PeerId] = set()
        self.heard: dict[PeerId, Heartbeat] = {}

    def alive(self, peer: PeerId) -> None:
        """A peer gave a sign of life."""
        new = peer not in self._last or peer in self.dead
        self._last[peer] = self._setting.clock()
        self._refused.pop(peer, None)
        if new:
            self.dead.discard(peer)
            self._listener.seen(peer)

    def lost(self, peer: PeerId, why: str) -> None:
        """A peer is believed dead from now on."""
        if peer in self.dead:
            return
        self.dead.add(peer)
        self._listener.gone(peer, why)

    def present(self) -> list[PeerId]:
        """Peers that gave a sign of life and are not believed dead."""
        return [peer for peer in self._last if peer not in self.dead]

    def attempt_in(self, place: tuple[int, int] | None) -> int:
        """The highest attempt of a round, given as its epoch and number, that others say they are in."""
        beats = self.heard.values()
        return max((beat.attempt for beat in beats if (beat.epoch, beat.round) == place), default=0)

    def most_are_past(self, place: tuple[int, int]) -> bool:
        """Whether more than half of the others are further than a round, given as its epoch and number."""
        past = [(beat.epoch, beat.round) > place for beat in self.heard.values()]
        return 2 * sum(past) > len(past)

    async def on_heartbeat(self, message: Heartbeat, context: Context) -> None:
        """Take a heartbeat."""
        peer, before = context.sender, self.heard.get(context.sender)
        self.heard[peer] = message
        if not message.answers:
            self._asked.add(peer)
        self.alive(peer)
        if before is None or _place(before) != _place(message):
            self._listener.moved(peer)

    async def on_goodbye(self, message: Goodbye, context: Context) -> None:
        """Take a goodbye."""
        self._forget(context.sender)
        self.lost(context.sender, f"said goodbye: {message.reason}")

    def _forget(self, peer: PeerId) -> None:
        self.heard.pop(peer, None)
        self._last.pop(peer, None)

    async def run(self) -> None:
        """Send heartbeats and watch for silence until cancelled."""
        async with asyncio.TaskGroup() as group:
            due = 0.0
            while True:
                now = self._setting.clock()
                if now >= due:
                    due = now + self._interval
                    self._beat_all(group)
                for peer, last in list(self._last.items()):
                    if now - last > self._silence and peer not in self.dead:
                        if self._expects(peer):
                            self.lost(peer, f"silent for {now - last:.0f} s")
                        else:  # it tells others now
                            self._forget(peer)
                await asyncio.sleep(min(self._interval, _LOOK.total_seconds()))

    def _beat_all(self, group: asyncio.TaskGroup) -> None:
        heartbeat = self._listener.heartbeat()
        if heartbeat is None:
            return
        circle = set(self._circle())
        asked, self._asked = self._asked - circle, set()
        for peer in circle:
            group.create_task(self._beat(peer, heartbeat))
        for peer in asked:
            group.create_task(self._beat(peer, replace(heartbeat, answers=True)))

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


def _place(beat: Heartbeat) -> tuple[int, int, int]:
    return beat.epoch, beat.round, beat.attempt
