"""A relay: fetches versions from its sources and serves them while they still come.

It keeps the last versions of each name within a budget of disk, and never removes one that somebody reads. It lists and
serves what it has also while every source is away, and finds it again after a restart.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from blake3 import blake3

from protocol.errors import Code, NodeError
from protocol.files import lock_folder, read_exactly, storage_error, write_whole
from protocol.units import PeerId
from shardcast import limits
from shardcast.draw import Watcher
from shardcast.expect import Expect
from shardcast.growth import GrowingManifest
from shardcast.http.catalogue import Catalogue, Held, held_on_disk
from shardcast.http.door import Access
from shardcast.http.intake import Intake, Manner
from shardcast.http.listing import Entry
from shardcast.http.news import News
from shardcast.http.server import Server
from shardcast.http.source import Source

log = logging.getLogger(__name__)
_AGAIN = 1.0
"""Seconds after which a version that could not be had is tried again, doubled each time up to a minute."""


class Relay:
    """Passes versions on.

    Args:
        folder: Where they lie.
        sources: Origins or other relays.
        names: Only objects of these names; all of them by default.
        publishers: Only of these authors; anybody that the sources let publish, by default.
        keep: Versions of each name and author.
        budget: Bytes of disk; None for as many as there are.
        access: Who may fetch.
        manner: How versions are brought.
        tell: Told in a sentence of what goes wrong.

    Attributes:
        server: What serves them.
    """

    def __init__(
        self,
        folder: Path,
        sources: Iterable[Source],
        *,
        names: Collection[str] = (),
        publishers: Collection[PeerId] = (),
        keep: int = limits.KEEP,
        budget: int | None = None,
        access: Access | None = None,
        manner: Manner | None = None,
        tell: Callable[[NodeError], None] = lambda error: log.warning("%s", error),
    ) -> None:
        self.folder = folder
        self.catalogue = Catalogue()
        self.server = Server(self.catalogue, access, self._check)
        self._sources = tuple(sources)
        self._names, self._publishers = frozenset(names), frozenset(publishers)
        self._keep, self._budget = keep, budget
        self._manner = manner or Manner()
        self._tell = tell
        self._intakes: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        self._unchecked: dict[str, set[int]] = {}  # shards that lay on the disk while nobody watched
        self._lock = -1
        self._watching: asyncio.Task[None] | None = None
        self._news: News | None = None

    async def start(self, host: str | None = None, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Serve what is there, and begin to fetch.

        Raises:
            NodeError: STO_UNWRITABLE, STO_LOCKED, NET_PORT_IN_USE.
        """
        self._lock = lock_folder(self.folder)
        try:
            await asyncio.to_thread(self._load)
            await self.server.start(host, port, tls)
        except BaseException as error:
            self._let_go()
            if isinstance(error, OSError):
                raise storage_error(error, self.folder) from error
            raise
        self._watching = asyncio.create_task(self._watch())

    def hint(self, identifier: str, name: str, author: str) -> None:
        """Somebody says that there is an object; see :meth:`News.hint`. What this relay does not pass on is ignored."""
        named = not self._names or name in self._names
        published = not self._publishers or author in self._publishers
        if self._news is not None and named and published and identifier not in self.catalogue.held:
            self._news.hint(identifier)

    async def stop(self) -> None:
        """Fetch and serve nothing more; what has begun goes on at the next start."""
        tasks = [*self._intakes.values(), *([self._watching] if self._watching else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.server.stop()
        self._let_go()

    def _let_go(self) -> None:
        self.catalogue.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # ---- which versions

    async def _watch(self) -> None:
        async with News(self._sources, self._manner.silence) as news:
            self._news = news
            while True:
                for entry in self._wanted(news.entries()):
                    if len(self._intakes) < limits.RELAY_INTAKES and self._makes_room(entry):
                        task = asyncio.create_task(self._take_in(entry, news))
                        self._intakes[entry.identifier] = task
                await news.change(1.0)
                self._tidy({entry.identifier for entry in news.entries()})

    def _wanted(self, entries: Iterable[Entry]) -> list[Entry]:
        """What is listed and not here, newest first, as many of each name as are kept."""
        series: dict[tuple[str, str], int] = {}
        wanted = []
        for entry in entries:
            if self._names and entry.name not in self._names:
                continue
            if not entry.author or (self._publishers and entry.author not in self._publishers):
                continue
            place = series.get((entry.name, entry.author), 0)
            series[(entry.name, entry.author)] = place + 1
            held = self.catalogue.held.get(entry.identifier)
            there = held is not None and held.whole
            if place < self._keep and not there and entry.identifier not in self._intakes:
                wanted.append(entry)
        return wanted

    def _makes_room(self, entry: Entry) -> bool:
        """Whether the budget has room for a version, once those are gone that are not needed."""
        if self._budget is None or entry.identifier in self.catalogue.held:
            return True
        if entry.size > self._budget:
            return False
        for held in self._surplus(self._budget - entry.size):
            if held.entry.serial < entry.serial or held.entry.name != entry.name:
                self._remove(held)
        return self.catalogue.bytes() + entry.size <= self._budget

    def _surplus(self, most: int | None) -> list[Held]:
        surplus = self.catalogue.surplus(self._keep, most)
        return [held for held in surplus if held.identifier not in self._intakes]

    def _tidy(self, listed: set[str]) -> None:
        """Remove what is kept no longer, and beginnings that nobody lists any more."""
        for held in self._surplus(self._budget):
            self._remove(held)
        for held in list(self.catalogue.held.values()):
            if not held.whole and held.identifier not in listed and held.identifier not in self._intakes:
                self._remove(held)

    def _remove(self, held: Held) -> None:
        self.catalogue.remove(held.identifier)
        self._unchecked.pop(held.identifier, None)
        for path in (self._data(held.identifier), self._data(held.identifier, ".data.part")):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._marker(held.identifier).unlink(missing_ok=True)

    # ---- bringing one

    async def _take_in(self, entry: Entry, news: News) -> None:
        identifier = entry.identifier
        known = self.catalogue.held.get(identifier)
        intake = Intake(
            identifier, entry.name, self._data(identifier),
            Expect(publisher=entry.author, encodings=(entry.encoding,)),
            news, self._manner, self._begin, known.growing if known else None,
        )  # fmt: skip
        try:
            await intake.run()
            held = self.catalogue.held.get(identifier)
            if held is None:  # the file was there already
                held = Held(intake.growing, self._data(identifier))
                held.all_arrived()
                self.catalogue.add(held)
            await asyncio.to_thread(self._mark, held)
            held.whole = True
            self.catalogue.changed()
            self._failures.pop(identifier, None)
        except NodeError as error:
            self._tell(error)
            failed = self._failures[identifier] = self._failures.get(identifier, 0) + 1
            await asyncio.sleep(min(_AGAIN * 2**failed, 60.0))
        finally:
            self._intakes.pop(identifier, None)

    def _begin(self, growing: GrowingManifest, path: Path) -> Watcher:
        held = self.catalogue.held.get(growing.identifier)
        if held is None:
            held = Held(growing, path)
            self.catalogue.add(held)
        held.growing = growing
        return held

    def _mark(self, held: Held) -> None:
        write_whole(self._marker(held.identifier), [bytes(held.growing.text)])

    # ---- what lies on the disk

    def _data(self, identifier: str, suffix: str = ".data") -> Path:
        return self.folder / f"{identifier}{suffix}"

    def _marker(self, identifier: str) -> Path:
        return self.folder / f"{identifier}.manifest"

    def _load(self) -> None:
        for marker in sorted(self.folder.glob("*.manifest")):
            try:
                held = held_on_disk(marker, self._data(marker.stem))
            except (OSError, ValueError, NodeError):
                marker.unlink(missing_ok=True)
                continue
            self._unchecked[held.identifier] = set(range(held.growing.count))
            self.catalogue.add(held)
        kept = {self._data(identifier) for identifier in self.catalogue.held}
        for leftover in self.folder.glob("*.data"):
            if leftover not in kept:
                leftover.unlink()

    async def _check(self, held: Held, index: int) -> bool:
        """Look at a shard from before the start once, before it is first sent."""
        unchecked = self._unchecked.get(held.identifier)
        if not unchecked or index not in unchecked:
            return True
        shard = held.growing.shard(index)
        data = await asyncio.to_thread(read_exactly, held.file.fileno(), shard.size, shard.offset)
        if await asyncio.to_thread(lambda: blake3(data).digest()) == shard.digest:
            unchecked.discard(index)
            return True
        self._tell(NodeError(Code.STO_CORRUPT, f"Shard {index} of {held.entry.name} is damaged."))
        self._remove(held)
        return False
