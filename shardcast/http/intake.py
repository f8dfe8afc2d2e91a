"""Bringing one object from servers into a file, while its manifest still grows. Clients and relays do the same here."""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from shardcast import limits
from shardcast.draw import Drawing, Local, Progress, Watcher
from shardcast.expect import Expect, Plan
from shardcast.growth import GrowingManifest
from shardcast.header import Header
from shardcast.http.carrier import HttpCarrier
from shardcast.http.news import News
from shardcast.http.source import Link, in_thread
from shardcast.manifest import Manifest
from shardcast.partial import PartFile, is_whole
from shardcast.scores import Scores

_SLICE = 64 * 1024
"""Bytes of a manifest that are read before others get their turn."""

_EAGER = 0.2
"""Seconds within which an answer without anything new was not held back, and the next question waits."""


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How an object is brought.

    Attributes:
        parallel: Connections over which shards come at once.
        silence: How long one source may bring nothing.
        patience: How long nothing at all may come.
        durable: Whether the finished file waits for the disk.
        progress: Called after every shard.
        refuse: Told of sources that are left.
        scores: What sources brought earlier, kept from fetch to fetch.
    """

    parallel: int = limits.PARALLEL
    silence: timedelta = limits.SILENCE
    patience: timedelta = limits.PATIENCE
    durable: bool = False
    progress: Callable[[Progress], None] | None = None
    refuse: Callable[[str, NodeError], None] = lambda url, error: None
    scores: Scores = field(default_factory=Scores)


class Intake:
    """One object on its way.

    Args:
        identifier: The link of its header.
        name: What it has to be called.
        into: The file to make.
        expect: What is believed: a publisher or a manifest digest.
        news: Who has it.
        manner: How it is brought.
        begin: Called once the header is believed and the file is there, with the manifest and the file's present path;
            what it returns sees the shards come.
        growing: The manifest as far as an earlier attempt came.
        newer_than: The serial that its own has to exceed, whatever a list said.

    Attributes:
        growing: The manifest so far.
        fetched: Bytes that came.
        resumed: Bytes that were there.
        verified: Verified bytes by source.
    """

    def __init__(
        self,
        identifier: str,
        name: str,
        into: Path,
        expect: Expect,
        news: News,
        manner: Manner,
        begin: Callable[[GrowingManifest, Path], Watcher | None] | None = None,
        growing: GrowingManifest | None = None,
        newer_than: int = 0,
    ) -> None:
        self.growing = growing or GrowingManifest(expect.manifest_digest, expect.verifier)
        self.growing.forget_doubtful()
        self._accepted = self.growing.header is not None
        self.fetched = self.resumed = 0
        self.verified: dict[str, int] = {}
        self._identifier, self._name, self._into = identifier, name, into
        self._expect, self._news, self._manner, self._begin = expect, news, manner, begin
        self._newer_than = newer_than
        self._liars: set[str] = set()
        self._grown = asyncio.Event()

    async def run(self) -> None:
        """Bring it; returns when the file has its name.

        Raises:
            NodeError: SHC_NO_HOLDER (what came is kept), SHC_MANIFEST, STO_….
        """
        follow = asyncio.ensure_future(self._follow())
        try:
            await self._until(follow, lambda: self._accepted)
            header = self.growing.header
            assert header is not None
            if await asyncio.to_thread(self._looks_done, header.size):
                await self._until(follow, lambda: self.growing.closed)
                if await asyncio.to_thread(is_whole, self._into, Plan.of(self.growing.manifest())):
                    self.resumed = header.size
                    return
            part = await asyncio.to_thread(PartFile, self._into, header.size)
            try:
                await self._draw(part, header.size, follow)
                whole = Plan.of(self.growing.manifest()).whole
                if not await asyncio.to_thread(
                    part.finish, whole, self._expect.verify, durable=self._manner.durable
                ):
                    raise NodeError(Code.SHC_MANIFEST, f"What is offered as {self._name} is not it.")
            finally:
                part.close()
        finally:
            follow.cancel()
            with suppress(asyncio.CancelledError, NodeError):
                await follow

    async def read(self) -> Manifest:
        """Bring only the manifest, to its close.

        Raises:
            NodeError: As `run`.
        """
        await self._follow()
        return self.growing.manifest()

    def _looks_done(self, size: int) -> bool:
        return self._into.is_file() and self._into.stat().st_size == size

    async def _until(self, follow: "asyncio.Future[None]", done: Callable[[], bool]) -> None:
        while not done():
            if follow.done():
                follow.result()
                return
            await self._next(follow)

    async def _next(self, *others: "asyncio.Future[Any]") -> None:
        """Wait until the manifest grew or one of the others is done."""
        grown: asyncio.Future[Any] = asyncio.ensure_future(self._grown.wait())
        try:
            await asyncio.wait((grown, *others), return_when=asyncio.FIRST_COMPLETED)
        finally:
            grown.cancel()

    # ---- shards

    async def _draw(self, part: PartFile, size: int, follow: "asyncio.Future[None]") -> None:
        manner = self._manner
        watcher = self._begin(self.growing, part.path) if self._begin is not None else None
        carrier = HttpCarrier(self._news.sources, manner.silence, passed_on=watcher is not None)
        drawing = Drawing(
            carrier, self._name, size, part, self._refuse, manner.progress,
            patience=manner.patience, watcher=watcher,
        )  # fmt: skip
        holders = [url for url in self._news.holders(self._identifier) if url not in self._liars]
        holders = manner.scores.order(holders)
        began = monotonic()
        known = await self._add(drawing, part, 0, watcher)
        draw = asyncio.ensure_future(drawing.run(holders, manner.parallel))
        offers = asyncio.ensure_future(self._offer(drawing))
        try:
            while not draw.done():
                if self.growing.closed and known == self.growing.count:
                    drawing.seal()
                    await asyncio.wait((draw,))
                    break
                await self._next(draw, follow)
                if follow.done():
                    follow.result()
                known = await self._add(drawing, part, known, watcher)
            draw.result()
        except Local as local:
            raise local.error from local
        finally:
            for task in (draw, offers):
                task.cancel()
            await asyncio.gather(draw, offers, return_exceptions=True)
            carrier.close()
            self.fetched, self.verified = drawing.fetched, drawing.verified
            for url, size in drawing.verified.items():
                manner.scores.brought(url, size, monotonic() - began)
        if drawing.left or not self.growing.closed:
            late = ": nothing came for too long" if drawing.starved else ""
            raise NodeError(
                Code.SHC_NO_HOLDER, f"{drawing.left} shards of {self._name} or more are missing{late}."
            )

    async def _add(self, drawing: Drawing, part: PartFile, known: int, watcher: Watcher | None) -> int:
        """Tell of new shards; those that an earlier start left in the file need not come again."""
        shards = self.growing.since(known)
        there = frozenset[int]() if part.fresh else await asyncio.to_thread(part.scan, shards)
        self.resumed += sum(shard.size for shard in shards if shard.index in there)
        arrived = getattr(watcher, "arrived", None)
        if arrived is not None:
            for index in there:
                arrived(index)
        drawing.add(shards, there)
        return known + len(shards)

    async def _offer(self, drawing: Drawing) -> None:
        while True:
            await self._news.change(60.0)
            for url in self._news.holders(self._identifier):
                if url not in self._liars:
                    drawing.offer(url)

    def _refuse(self, url: str, error: NodeError) -> None:
        self._manner.scores.failed(url)
        self._manner.refuse(url, error)

    # ---- the manifest

    async def _follow(self) -> None:
        """Read the manifest to its close, from one source after the other."""
        last, at, link = monotonic(), "", None
        failed = 0
        try:
            while not self.growing.closed:
                if monotonic() - last > self._manner.patience.total_seconds():
                    raise NodeError(
                        Code.SHC_NO_HOLDER, f"Nobody brings the manifest of {self._name} to its end."
                    )
                holders = [url for url in self._news.holders(self._identifier) if url not in self._liars]
                if not holders:
                    if self._liars and self._news.everyone_heard:
                        raise NodeError(Code.SHC_MANIFEST, f"What is offered as {self._name} is refused.")
                    await self._news.change(1.0)
                    continue
                if at not in holders or failed:
                    if link is not None:
                        link.close()
                    at = holders[(holders.index(at) + 1) % len(holders)] if at in holders else holders[0]
                    link = Link(self._news.sources[at], self._manner.silence.total_seconds())
                    self.growing.forget_doubtful()
                assert link is not None
                before, asked = self.growing.sure, monotonic()
                try:
                    await self._read(link)
                    failed = 0
                except NodeError as error:
                    failed += 1
                    if error.code in (Code.SHC_MANIFEST, Code.SHC_NAME):
                        self._liars.add(at)
                        self._refuse(at, NodeError(Code.SHC_MANIFEST, error.sentence, peer=at))
                        if not self._accepted:  # it may be signed, and yet another object
                            self.growing = GrowingManifest(
                                self._expect.manifest_digest, self._expect.verifier
                            )
                    else:
                        await asyncio.sleep(min(0.05 * 2**failed, 2.0))
                if self.growing.sure > before:
                    last = monotonic()
                elif not failed and monotonic() - asked < _EAGER:
                    await asyncio.sleep(_EAGER)
        finally:
            if link is not None:
                link.abort()

    async def _read(self, link: Link) -> None:
        held = self.growing
        wait = math.ceil(min(limits.LONG_POLL, self._manner.patience).total_seconds())
        path = f"/manifests/{self._identifier}?from={len(held.text)}&wait={wait}"
        most = limits.MAX_MANIFEST - len(held.text)
        data = await in_thread(link, lambda: link.text(path, most, wait=wait))
        for start in range(0, len(data), _SLICE):
            held.feed(data[start : start + _SLICE])
            if held.identifier not in ("", self._identifier):
                raise NodeError(Code.SHC_MANIFEST, "It is the manifest of another object.")
            if held.header is not None and not self._accepted:
                self._judge(held.header)
                self._accepted = True
            self._grown.set()
            self._grown = asyncio.Event()
            await asyncio.sleep(0)
        if not held.ends_well:
            raise NodeError(
                Code.SHC_MANIFEST, "It ends with lines that are not signed, or has another digest."
            )

    def _judge(self, header: Header) -> None:
        why = self._expect.objection(self._name, header)
        if self._newer_than and header.serial <= self._newer_than:
            why = f"its serial {header.serial} is not new"
        if self._expect.publisher is not None and header.author != self._expect.publisher:
            why = f"it is by {header.author or 'nobody'}"
        elif (
            self._expect.publisher is not None
            and self.growing.closed
            and not self.growing.manifest().signed_by(self._expect.publisher, self._expect.verifier)
        ):
            why = f"it is not signed by {self._expect.publisher}"
        if why is not None:
            raise NodeError(Code.SHC_MANIFEST, f"The manifest offered for {self._name} is refused: {why}.")
