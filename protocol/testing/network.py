"""The in-memory network: it decides what becomes of each piece, and delivers what arrives at its virtual time."""

from collections import Counter
from collections.abc import Callable, Iterable
from contextvars import Context
from random import Random
from typing import Protocol

from protocol.messages.registry import Plane
from protocol.testing.conditions import PERFECT, Conditions, Fate, Kind, flipped
from protocol.testing.recording import Diverged, Recorder, Replayer
from protocol.testing.virtual import VirtualLoop

Deliver = Callable[[bytes | None], None]
"""Takes a piece that arrived; None if its connection broke instead."""

_GRAIN = 1e-7  # seconds between two pieces that keep their order


class Place(Protocol):
    """An end of the network."""

    name: str
    number: int
    context: Context


class Network:
    """Carries pieces between places.

    Args:
        loop: The clock.
        chance: Where the fates are drawn from.
        recorder: Takes note of each fate, if given.
        replayer: Gives each fate in place of chance, if given.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        chance: Random,
        *,
        conditions: Conditions = PERFECT,
        recorder: Recorder | None = None,
        replayer: Replayer | None = None,
    ) -> None:
        self.loop = loop
        self._chance = chance
        self._recorder = recorder
        self._replayer = replayer
        self.conditions = conditions
        self._between: dict[tuple[int, int], Conditions] = {}
        self._groups: dict[int, int] = {}
        self._blocked: set[tuple[int, int]] = set()
        self._arrivals: dict[tuple[int, int, bool], float] = {}
        self._line_free: dict[tuple[str, int, Plane], float] = {}
        self._disturbed = recorder is not None or replayer is not None
        self.sent = 0
        """Pieces sent."""
        self.bytes = 0
        """Their bytes."""
        self.counts: Counter[str] = Counter()
        """Pieces ``lost``, ``blocked``, ``duplicated``, ``reordered``, ``corrupted``."""

    # --- what a test sets ----------------------------------------------------------------------------------------

    def towards(self, source: Place, target: Place, conditions: Conditions) -> None:
        """Sets the conditions of one direction."""
        self._between[source.number, target.number] = conditions

    def between(self, one: Place, other: Place, conditions: Conditions) -> None:
        """Sets the conditions of both directions."""
        self.towards(one, other, conditions)
        self.towards(other, one, conditions)

    def partition(self, *groups: Iterable[Place]) -> None:
        """Cuts the groups off from one another and from everyone who is in none; pieces under way still arrive."""
        self._groups = {
            place.number: number for number, group in enumerate(groups, start=1) for place in group
        }
        self._look()

    def block(self, source: Place, target: Place) -> None:
        """Cuts one direction."""
        self._blocked.add((source.number, target.number))
        self._look()

    def heal(self) -> None:
        """Undoes every :meth:`partition` and :meth:`block`."""
        self._groups.clear()
        self._blocked.clear()
        self._look()

    def _look(self) -> None:
        """Whether fates have to be thought about at all."""
        watched = self._recorder is not None or self._replayer is not None
        self._disturbed = watched or bool(self._groups or self._blocked)

    # --- what the ends of calls use ------------------------------------------------------------------------------

    def of(self, source: Place, target: Place) -> Conditions:
        """The conditions of one direction."""
        return self._between.get((source.number, target.number), self.conditions)

    def cut(self, source: Place, target: Place) -> bool:
        """Whether nothing gets from one place to the other."""
        if not self._groups and not self._blocked:
            return False
        apart = self._groups.get(source.number, 0) != self._groups.get(target.number, 0)
        return source is not target and (apart or (source.number, target.number) in self._blocked)

    def signal(self, source: Place, target: Place, act: Callable[[None], None]) -> None:
        """Tells the other end of a connection something of the connection's own; chance has no part in it."""
        if not self.cut(source, target):
            when = self.loop.time() + self.of(source, target).delay_seconds
            self.loop.at(when, act, None, target.context)

    def carry(
        self,
        source: Place,
        target: Place,
        plane: Plane,
        kind: Kind,
        name: str,
        raw: bytes,
        deliver: Deliver,
        lost: Callable[[], None] | None = None,
    ) -> None:
        """Sends a piece.

        Args:
            source: Who sends it.
            target: In whose name ``deliver`` runs.
            plane: The connection that carries it.
            kind: What it is.
            name: The message's name.
            raw: Its bytes.
            deliver: Called for each copy that arrives.
            lost: Called at once if none will.
        """
        pair = (source.number, target.number, plane is Plane.BULK)
        conditions = self._between.get(pair[:2], self.conditions) if self._between else self.conditions
        self.sent += 1
        self.bytes += len(raw)
        loop = self.loop
        now = loop.time()
        if not (conditions.draws or self._disturbed):
            when = now + conditions.delay_seconds
            when += self._lines(source, target, plane, len(raw), conditions)
            arrivals = self._arrivals
            last = arrivals.get(pair)
            if last is not None and last > when:
                when = last
            arrivals[pair] = when
            loop.at(when, deliver, raw, target.context)
            return
        fate = self._fate(source, target, plane, kind, name, raw, conditions)
        self._count(fate)
        if not fate.delays and lost is not None:
            lost()
        arriving: bytes | None = raw
        if fate.bit is not None:
            verified = kind is Kind.TOPIC or kind is (Kind.FRAME if plane is Plane.BULK else Kind.CALL)
            arriving = flipped(raw, fate.bit) if verified else None
        for delay in fate.delays:
            loop.at(now + delay, deliver, arriving, target.context)

    def _fate(
        self,
        source: Place,
        target: Place,
        plane: Plane,
        kind: Kind,
        name: str,
        raw: bytes,
        conditions: Conditions,
    ) -> Fate:
        if self._replayer is not None:
            try:
                fate = self._replayer.next(source.name, target.name, kind, name, raw)
            except Diverged as error:
                self.loop.fail(error)
                return Fate(())
        else:
            fate = self._draw(source, target, plane, kind, len(raw), conditions)
        if self._recorder is not None:
            self._recorder.note(self.loop.time(), source.name, target.name, kind, name, raw, fate)
        return fate

    def _draw(
        self, source: Place, target: Place, plane: Plane, kind: Kind, size: int, conditions: Conditions
    ) -> Fate:
        draw, now = self._chance.random, self.loop.time()
        if self.cut(source, target):
            return Fate((), blocked=True)
        if conditions.loss and draw() < conditions.loss:
            return Fate(())
        bit = None
        if conditions.corruption and size and draw() < conditions.corruption:
            bit = self._chance.randrange(size * 8)
        delay = conditions.delay_seconds
        if conditions.jitter:
            delay += conditions.jitter.total_seconds() * draw()
        delay += self._lines(source, target, plane, size, conditions)
        ordered = kind is Kind.FRAME or not (conditions.reordering and draw() < conditions.reordering)
        key = (source.number, target.number, plane is Plane.BULK)
        delay = max(self._arrivals.get(key, 0.0) - now, delay)
        if ordered:
            self._arrivals[key] = now + delay
        else:
            delay += conditions.held_back.total_seconds() * draw()
        delays = [delay]
        if kind in (Kind.CALL, Kind.TOPIC) and conditions.duplication and draw() < conditions.duplication:
            delays.append(delay + conditions.held_back.total_seconds() * draw() + _GRAIN)
        return Fate(tuple(delays), bit, overtakable=not ordered)

    def _lines(self, source: Place, target: Place, plane: Plane, size: int, conditions: Conditions) -> float:
        """Seconds until the lines of both ends have carried ``size`` more bytes."""
        waits = [0.0]
        if conditions.bandwidth is not None:
            waits.append(self._queue(("out", source.number, plane), size, conditions.bandwidth))
        if conditions.intake is not None:
            waits.append(self._queue(("in", target.number, plane), size, conditions.intake))
        return max(waits)

    def _queue(self, line: tuple[str, int, Plane], size: int, bandwidth: int) -> float:
        now = self.loop.time()
        free = max(self._line_free.get(line, 0.0), now) + size / bandwidth
        self._line_free[line] = free
        return free - now

    def _count(self, fate: Fate) -> None:
        counts = self.counts
        if not fate.delays:
            counts["blocked" if fate.blocked else "lost"] += 1
        if len(fate.delays) > 1:
            counts["duplicated"] += 1
        if fate.bit is not None:
            counts["corrupted"] += 1
        if fate.overtakable:
            counts["reordered"] += 1
