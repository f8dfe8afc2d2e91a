"""What the sources say that they have, kept up to date by one held-back question to each."""

import asyncio
import random
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from shardcast import limits
from shardcast.http.listing import Entry, read_listing, read_peers
from shardcast.http.source import Link, Source, in_thread

T = TypeVar("T")

_EAGER = 0.5
"""Seconds within which an answer that brings nothing new was not held back: a cache on the way ignores the question."""

_HINTS = 1.0
"""Seconds between two hints that are followed."""


class News:
    """Lists of several sources. A source that is away is asked again and again, later each time.

    Args:
        sources: Whom to ask.
        silence: How long one may take beyond the time it may hold a question back.
        serves: The port at which this client serves others. Then others that do are asked as well, as sources name
            them.

    Attributes:
        sources: By URL.
        failures: Why sources do not answer, by URL.
    """

    def __init__(
        self, sources: Iterable[Source], silence: timedelta = limits.SILENCE, serves: int = 0
    ) -> None:
        self.sources = {source.url: source for source in sources}
        self._given = frozenset(self.sources)
        self._serves = serves
        self.failures: dict[str, NodeError] = {}
        self._silence = silence.total_seconds()
        self._lists: dict[str, dict[str, Entry]] = {}
        self._change, self._hinted = asyncio.Event(), asyncio.Event()
        self._followed = -_HINTS
        self._hint: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "News":
        """Begin to ask."""
        self._tasks = [asyncio.create_task(self._ask(source)) for source in self.sources.values()]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop asking."""
        if self._hint is not None:
            self._hint.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def everyone_heard(self) -> bool:
        """Whether each source answered or failed."""
        return self._given <= self._lists.keys() | self.failures.keys()

    @property
    def hopeless(self) -> bool:
        """Whether every source said that it does not let this client in."""
        failures = [self.failures.get(url) for url in self._given]
        return all(failure is not None and failure.code is Code.SHC_ACCESS for failure in failures)

    def entries(self) -> list[Entry]:
        """Everything that anyone has, newest first, each once."""
        found: dict[str, Entry] = {}
        for listed in self._lists.values():
            for identifier, entry in listed.items():
                known = found.get(identifier)
                if known is None or (entry.serial, not entry.closed) < (known.serial, not known.closed):
                    found[identifier] = entry  # who claims less is believed: the manifest decides in the end
        return sorted(found.values(), key=lambda entry: (-entry.serial, entry.identifier))

    def holders(self, identifier: str) -> list[str]:
        """Who says that they have an object, in the order in which sources were given."""
        return [url for url in self.sources if identifier in self._lists.get(url, ())]

    def hint(self, identifier: str) -> None:
        """Somebody says that there is an object: unless it is known, ask the sources now, at most once a second.

        Nothing else depends on it, so it may be a lie.
        """
        if self._hint is not None or any(identifier in listed for listed in self._lists.values()):
            return
        delay = max(0.0, self._followed + _HINTS - monotonic())
        self._hint = asyncio.get_running_loop().call_later(delay, self._follow_hint)

    def _follow_hint(self) -> None:
        self._hint, self._followed = None, monotonic()
        self._hinted.set()
        self._hinted = asyncio.Event()

    async def change(self, patience: float) -> None:
        """Wait until a list changes or a source fails, or for so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._change.wait()

    async def _ask(self, source: Source) -> None:
        link = Link(source, self._silence)
        cursor, failed = "", 0
        wait = int(limits.LONG_POLL.total_seconds())
        try:
            while True:
                asked, hinted = monotonic(), self._hinted
                path = f"/versions?after={cursor}&wait={wait if cursor else 0}"
                if self._serves and source.url in self._given:
                    path += f"&serves={self._serves}"
                try:
                    text = await _unless(
                        hinted,
                        in_thread(
                            link,
                            lambda link=link, path=path: link.text(path, limits.MAX_LISTING, wait=wait),  # type: ignore[misc]
                        ),
                    )
                    if text is None:
                        link, cursor = Link(source, self._silence), ""
                        continue
                    now, entries = read_listing(text)
                    if self._serves and source.url in self._given:
                        self._meet(read_peers(text))
                except NodeError as error:
                    self._lists.pop(source.url, None)
                    self.failures[source.url] = error
                    self._signal()
                    failed, cursor = failed + 1, ""
                    longest = min(0.1 * 2**failed, limits.SILENCE.total_seconds())
                    await _unless(hinted, asyncio.sleep(longest * random.uniform(0.5, 1.0)))
                    continue
                failed = 0
                self.failures.pop(source.url, None)
                if now != cursor:
                    cursor = now
                    self._lists[source.url] = {entry.identifier: entry for entry in entries}
                    self._signal()
                elif monotonic() - asked < _EAGER:
                    await _unless(hinted, asyncio.sleep(1.0))
        finally:
            link.abort()

    def _meet(self, urls: Iterable[str]) -> None:
        for url in urls:
            with suppress(NodeError):
                peer = Source.parse(url)
                if peer.url not in self.sources and len(self.sources) - len(self._given) < limits.MAX_PEERS:
                    self.sources[peer.url] = peer
                    self._tasks.append(asyncio.create_task(self._ask(peer)))

    def _signal(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


async def _unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Do some work, or leave it and return None when the event comes."""
    task, stop = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        stop.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)
