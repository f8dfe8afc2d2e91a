"""The service: takes facts, holds the view, and tells subscribers what changed. What API and pages are made on."""

import asyncio
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from node.coordinator.facts import Fact
from node.coordinator.fold import fold
from node.coordinator.recorder import Recorder
from node.coordinator.store import Store
from node.coordinator.view import LISTS, Delta, View
from node.coordinator.view_json import encoded

TICK = 0.2
"""Seconds between two batches of changes to subscribers."""

KEPT = 300
"""So many batches are kept at most for subscribers that come back."""

KEPT_BYTES = 8 * 2**20
"""So much JSON they have at most together."""

_TURN = 200  # facts that are folded before others of the loop have their turn
_BEHIND = 64  # batches that a subscriber may be behind before it has to begin anew


@dataclass(frozen=True)
class Batch:
    """Changes of one moment.

    Attributes:
        number: Batches count from 1 without gaps, for one process of the service.
        deltas: What changed, in order; of several changes of one entry only the last.
        body: The same as JSON.
    """

    number: int
    deltas: tuple[Delta, ...]
    body: bytes


class Subscription:
    """One subscriber's batches: ``async for batch in subscription``. Ends when it is too far behind, or cancelled."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._queue: asyncio.Queue[Batch | None] = asyncio.Queue(_BEHIND + 1)
        self.lost = False

    def give(self, batch: Batch | None) -> None:
        """One more batch; a subscriber that does not keep up is ended."""
        if self.lost:
            return
        if self._queue.qsize() >= _BEHIND or batch is None:
            self.lost = True
            batch = None
        self._queue.put_nowait(batch)

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        batch = await self._queue.get()
        if batch is None:
            raise StopAsyncIteration
        return batch

    def close(self) -> None:
        """No more batches."""
        self._service.unsubscribe(self)


class Service:
    """A run as a coordinator knows it. ``take`` may be called by any thread; the rest belongs to the loop of ``run``.

    Args:
        store: The database.
        folder: Where what the database cannot take is put aside.
        clock: Unix seconds.

    Attributes:
        view: The present.
        boot: Names this process; numbers of batches count within it.
        store: For pages of what is past; every call may raise ``StoreError``.
    """

    def __init__(self, store: Store, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.store, self.clock = store, clock
        self.boot = secrets.token_hex(4)
        self.view = View()
        self._unread = ""
        self.recorder = Recorder(store, folder, self._on_trouble)
        self._taken: deque[Fact] = deque()
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._batches: deque[Batch] = deque()
        self._kept = 0  # bytes
        self._number = 0
        self._subscribers: set[Subscription] = set()
        self._begun = False

    # ---- facts in

    def take(self, fact: Fact) -> "Future[None]":
        """Learn a fact.

        Returns:
            Done once it is durable.
        """
        with self._guard:
            done = self.recorder.put(fact)
            self._taken.append(fact)
            loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._wake.set)
        return done

    @property
    def trouble(self) -> str:
        """Why the database cannot be used now, in a sentence; empty while it can."""
        return self.recorder.trouble or self._unread

    def _on_trouble(self, sentence: str) -> None:
        with self._guard:
            loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._wake.set)

    # ---- life

    def begin(self) -> None:
        """Read what is stored and begin to write. Where the database is not there, the view begins empty."""
        try:
            self.view = self.store.view()
        except Exception as error:
            self._unread = str(error)
        else:
            self._begun = True
        self.recorder.start()

    def release(self) -> None:
        """End all subscriptions, so that nobody's stream holds up the end of the server. Any thread may call it."""

        def let_go() -> None:
            for subscription in tuple(self._subscribers):
                subscription.give(None)

        with self._guard:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(let_go)

    def end(self) -> None:
        """Write what waits and let the database go."""
        self.recorder.stop()
        self.store.close()

    async def run(self) -> None:
        """Fold what was taken and tell subscribers, until cancelled."""
        with self._guard:
            self._loop = asyncio.get_running_loop()
        self._wake.set()  # for what came before
        said = self.trouble
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                deltas = await self._fold_in_turns()
                if said != self.trouble:
                    said = self.trouble
                    deltas = (*deltas, Delta("trouble", "", said))
                if deltas:
                    self._tell(deltas)
                await asyncio.sleep(TICK)
        finally:
            with self._guard:
                self._loop = None

    async def _fold_in_turns(self) -> tuple[Delta, ...]:
        """As ``fold_taken``, but others of the loop have their turn meanwhile; the view changes once, at the end."""
        if not self._begun and (late := self._come_late()):
            return late
        view, deltas = self.view, list[Delta]()
        for _ in range(-(-len(self._taken) // _TURN)):
            view = self._fold_some(view, deltas)
            await asyncio.sleep(0)
        self.view = view
        return coalesced(deltas)

    def _fold_some(self, view: View, deltas: list[Delta]) -> View:
        for _ in range(min(_TURN, len(self._taken))):
            view, changed = fold(view, self._taken.popleft())
            deltas.extend(changed)
        return view

    def fold_taken(self) -> tuple[Delta, ...]:
        """Fold what was taken since the last time, where no loop runs; what changed."""
        if not self._begun and (late := self._come_late()):
            return late
        deltas = list[Delta]()
        while self._taken:
            self.view = self._fold_some(self.view, deltas)
        return coalesced(deltas)

    def _come_late(self) -> tuple[Delta, ...]:
        """The database came after the start: the view is what it holds and what was taken meanwhile."""
        with self._guard:
            found = self.recorder.present()
            if found is None:
                return ()
            self._begun, self._unread = True, ""
            self._taken.clear()
        view, rest = found
        for fact in rest:
            view, _ = fold(view, fact)
        self.view = view
        return (Delta("all", "", None),)

    # ---- changes out

    @property
    def number(self) -> int:
        """The number of the last batch."""
        return self._number

    def _tell(self, deltas: tuple[Delta, ...]) -> None:
        self._number += 1
        batch = Batch(self._number, deltas, encoded(deltas))
        self._batches.append(batch)
        self._kept += len(batch.body)
        while self._kept > KEPT_BYTES or len(self._batches) > KEPT:
            self._kept -= len(self._batches.popleft().body)
        for subscription in tuple(self._subscribers):
            subscription.give(batch)

    def subscribe(self, after: int | None = None) -> Subscription | None:
        """Changes from now on, or after the batch with a number.

        Returns:
            None where batches after that one are no longer kept: the subscriber has to begin with the view.
        """
        subscription = Subscription(self)
        if after is not None and after != self._number:
            kept = [batch for batch in self._batches if batch.number > after]
            if after > self._number or len(kept) != self._number - after or len(kept) > _BEHIND:
                return None
            for batch in kept:
                subscription.give(batch)
        self._subscribers.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """No more changes for one subscriber."""
        self._subscribers.discard(subscription)

    @property
    def viewers(self) -> int:
        """How many subscribers there are."""
        return len(self._subscribers)


def coalesced(deltas: list[Delta]) -> tuple[Delta, ...]:
    """Without the earlier ones of several changes of one entry; entries that are added to lists all stay."""
    last: dict[tuple[str, str], int] = {}
    for place, delta in enumerate(deltas):
        if delta.topic not in LISTS:
            last[delta.topic, delta.key] = place
    return tuple(
        delta
        for place, delta in enumerate(deltas)
        if delta.topic in LISTS or last[delta.topic, delta.key] == place
    )
