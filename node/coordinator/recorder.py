"""Writes facts to the store in a thread of its own, and keeps them where the database cannot take them.

What comes is written in batches, in the order in which it came. While the database is locked, full or gone, it goes to
a spill file, and from there to the database once that is back. Where the spill file cannot be written either, facts
wait in memory, up to a bound at which ``full`` asks whoever collects to stop: members and the ledger keep what is not
asked for.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice
from pathlib import Path

from node.coordinator.database import StoreError
from node.coordinator.facts import Decided, Fact
from node.coordinator.fold import fold
from node.coordinator.spill import FILE, Spill
from node.coordinator.store import SNAPSHOT_EVERY, Store
from node.coordinator.view import Round, View

QUEUE = 20_000
"""So many facts wait in memory at most before ``full``."""

_BATCH = 2000
_AGAIN = 1.0  # seconds until a database that failed is tried again

_Waiting = tuple[Fact, "Future[None]"]

_log = logging.getLogger(__name__)


class Recorder:
    """The one writer of a store. Any thread may call ``put``.

    Args:
        store: Where facts go.
        folder: Where the spill file lies.
        on_trouble: Told when ``trouble`` changes, in the recorder's thread.

    Attributes:
        trouble: Why the database cannot be written now, in a sentence; empty while it can.
        stuck: The spill file cannot be written either.
    """

    def __init__(
        self, store: Store, folder: Path, on_trouble: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._store, self._spill = store, Spill(folder / FILE)
        self._on_trouble = on_trouble
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._kept = 0
        self.trouble = ""
        self.stuck = False
        self._written: View | None = (
            None  # over all that is in the database; None until it has been read once
        )
        self._whole = False  # nothing is in the spill file
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, to the database or to the spill file, then end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def full(self) -> bool:
        """Whether nothing more should be collected for now."""
        return len(self._queue) >= QUEUE

    @property
    def waiting(self) -> int:
        """How many facts are in memory only."""
        return len(self._queue)

    def put(self, fact: Fact) -> "Future[None]":
        """Write a fact soon.

        Returns:
            Done once it is durable; an OSError where it is in memory only and stays there.
        """
        done: Future[None] = Future()
        with self._changed:
            self._queue.append((fact, done))
            self._changed.notify_all()
        return done

    def present(self) -> tuple[View, tuple[Fact, ...]] | None:
        """The view over all that is in the database, and what was put and is not; None while some of it is spilled."""
        with self._changed:
            if self._written is None or not self._whole:
                return None
            return self._written, tuple(fact for fact, _ in self._queue)

    # ---- the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopping or self._queue, None if not self.trouble else _AGAIN
                )
                stopping = self._stopping
                if not self._queue and stopping and not self.trouble:
                    return
            try:
                self._bring_home()
            except StoreError as error:
                self._say(str(error))
                self._put_aside()
            except Exception:  # a mistake in this software: facts are still kept
                _log.exception("facts could not be written")
                self._say("The database cannot be written because of a mistake in this software.")
                self._put_aside()
            if stopping and (self.trouble or not self._queue):
                return

    def _bring_home(self) -> None:
        """Write what was spilled, then what waits."""
        if self._written is None:
            self._written = self._store.view()
            self._kept = self._written.sequence
        place = self._store.spilled() if self._spill else ""
        while (batch := self._spill.after(place)) is not None:
            self._write(batch.facts, batch.place)
            place = batch.place
        self._spill.remove()
        self._whole, self.stuck = True, False
        while batch_now := self._next_batch():
            self._write(tuple(fact for fact, _ in batch_now))
        self._say("")

    def _next_batch(self) -> list[_Waiting]:
        with self._changed:
            return list(islice(self._queue, _BATCH))

    def _write(self, facts: tuple[Fact, ...], spilled: str = "") -> None:
        assert self._written is not None
        view, rounds = self._written, dict[int, Round]()
        for fact in facts:
            view, _ = fold(view, fact)
            if isinstance(fact, Decided):
                for number in (fact.round - 1, fact.round):  # the one before is whole now
                    entry = view.rounds.get(str(number))
                    if entry is not None and entry.outcome != "running":
                        rounds[number] = entry
        last = self._store.append(facts, tuple(rounds.values()), spilled)
        written = replace(view, sequence=last)
        self._done(0 if spilled else len(facts), written)
        if last - self._kept >= SNAPSHOT_EVERY:
            self._store.keep_view(written, facts[-1].seen_at)
            self._kept = last

    def _put_aside(self) -> None:
        """The database cannot take them: to the spill file."""
        while batch := self._next_batch():
            try:
                self._spill.add([fact for fact, _ in batch])
            except OSError as error:
                self.stuck = True
                for _, future in batch:
                    if not future.done():
                        future.set_exception(OSError(str(error)))
                return
            self._whole = self.stuck = False
            self._done(len(batch))

    def _done(self, count: int, written: View | None = None) -> None:
        """The first facts of the queue are durable; with the view over the database where they are in that."""
        with self._changed:
            self._written = written or self._written
            done = [self._queue.popleft()[1] for _ in range(count)]
        for future in done:
            if not future.done():
                future.set_result(None)

    def _say(self, sentence: str) -> None:
        if sentence != self.trouble:
            self.trouble = sentence
            self._on_trouble(sentence)
