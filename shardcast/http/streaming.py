"""Tensors of a version straight from servers, while it is still on its way: for an engine that swaps weights."""

import asyncio
import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from protocol.errors import Code, NodeError
from shardcast.draw import Watcher
from shardcast.encoding import Held
from shardcast.expect import Expect
from shardcast.growth import GrowingManifest
from shardcast.http.fetching import fetch_version
from shardcast.http.source import Source
from shardcast.loading import Framework, load
from shardcast.manifest import Manifest
from shardcast.piece import Piece
from shardcast.ranges import Arrivals

_Begun = tuple[Manifest, Path, Arrivals]


def stream(
    sources: Iterable[Source],
    into: Path,
    expect: Expect,
    name: str = "weights",
    *,
    newer_than: int = 0,
    parent: Held | None = None,
    framework: Framework | None = None,
) -> Iterator[tuple[str, Any]]:
    """Fetch a version in a thread of its own, and yield its tensors here as their bytes arrive and agree.

    What is yielded is the version only when the iterator has ended; then the object lies at `into`. Who stops before
    that ends the fetch, and keeps what came for the next one.

    Args:
        sources: Servers.
        into: The file to make or replace.
        expect: What is believed.
        name: Of the object.
        newer_than: The serial of the version that is there already.
        parent: The file that decoding takes, if it takes one.
        framework: As in `shardcast.load`.

    Raises:
        NodeError: As `fetch_version` and `shardcast.load` do; SHC_NO_HOLDER also, when the version that was begun
            could not be had, though another one could.
    """
    begun: queue.SimpleQueue[_Begun | NodeError] = queue.SimpleQueue()
    fetch = _Fetch(begun)
    thread = threading.Thread(
        target=fetch.run, args=(tuple(sources), into, expect, name, newer_than), name="shardcast", daemon=True
    )
    thread.start()
    try:
        first = begun.get()
        if isinstance(first, NodeError):
            raise first
        manifest, path, arrivals = first
        yield from load(manifest, path, arrivals=arrivals, parent=parent, framework=framework)
    finally:
        fetch.stop()
        thread.join()


class _Fetch:
    """The fetch in its thread, and what it tells the thread that loads."""

    def __init__(self, begun: "queue.SimpleQueue[_Begun | NodeError]") -> None:
        self._begun = begun
        self._loop = asyncio.new_event_loop()
        self._stopped = threading.Event()
        self._task: asyncio.Task[Any] | None = None
        self._identifier = ""
        self._arrivals = Arrivals()

    def run(
        self, sources: tuple[Source, ...], into: Path, expect: Expect, name: str, newer_than: int
    ) -> None:
        """Fetch, and say how it ends."""
        failure = NodeError(Code.SHC_NO_HOLDER, f"The fetch of {name} was stopped.")
        try:
            self._task = self._loop.create_task(
                fetch_version(sources, into, expect, name, newer_than=newer_than, begin=self._begin)
            )
            if self._stopped.is_set():
                self._task.cancel()
            done = self._loop.run_until_complete(self._task)
            if not self._identifier:  # it was there already
                self._begun.put((done.manifest, into, self._arrivals))
            self._arrivals.finish()
        except (NodeError, asyncio.CancelledError) as error:
            self._arrivals.fail(error if isinstance(error, NodeError) else failure)
            self._begun.put(error if isinstance(error, NodeError) else failure)
        finally:
            self._loop.close()

    def stop(self) -> None:
        """End it, if it still runs. From another thread."""
        self._stopped.set()
        if self._task is not None:
            with suppress(RuntimeError):  # it ended meanwhile
                self._loop.call_soon_threadsafe(self._task.cancel)

    def _begin(self, growing: GrowingManifest, path: Path) -> Watcher:
        if self._identifier not in ("", growing.identifier):
            self._arrivals.fail(NodeError(Code.SHC_NO_HOLDER, "The version that was begun cannot be had."))
            self._arrivals = Arrivals()
        elif not self._identifier:
            self._identifier = growing.identifier
            self._begun.put((growing.manifest(), path, self._arrivals))
        return _Watch(growing, self._arrivals)


class _Watch:
    """Says which bytes of the file are there."""

    def __init__(self, growing: GrowingManifest, arrivals: Arrivals) -> None:
        self._growing, self._arrivals = growing, arrivals

    def coming(self, piece: Piece) -> None:
        """See :class:`shardcast.draw.Watcher`."""

    def grew(self, piece: Piece) -> None:
        """See :class:`shardcast.draw.Watcher`."""
        if piece.verdict:
            self.arrived(piece.shard.index)

    def arrived(self, index: int) -> None:
        """A shard is in the file, and right."""
        shard = self._growing.shard(index)
        self._arrivals.add(shard.offset, shard.offset + shard.size)
