"""Versions of a model in all their forms: published whole and as deltas, brought by the cheapest way."""

import asyncio
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.files import storage_error
from protocol.units import PeerId
from shardcast import limits
from shardcast.draw import Progress
from shardcast.encoding import DELTA, PLANES, RAW, Held, decode_file, encode_file
from shardcast.expect import Expect
from shardcast.header import Decoded
from shardcast.http.fetching import fetch_version
from shardcast.http.listing import Entry
from shardcast.http.news import News
from shardcast.http.origin import Origin, Publication, Published
from shardcast.http.source import Source
from shardcast.names import check_name
from shardcast.ranges import FileRanges
from shardcast.stream import Parent, index_of
from shardcast.tensors import TensorIndex
from shardcast.ways import Offer, Way, cheapest_way, wants_snapshot

_FILE = re.compile(r"[0-9a-f]{64}")
_OURS = re.compile(r"[0-9a-f]{64}(?:\.(?:delta|planes))?(?:\.(?:part|tmp))?")
_GRACE = 0.3
"""Seconds that further sources have for their lists once one has answered."""
_MOST_INDEX = 20_000  # tensors that a manifest's header names; of more a reader learns from the file itself


def forms(name: str) -> dict[str, str]:
    """What each form of a version is called: its object's name, by encoding."""
    return {RAW: name, PLANES: f"{name}/planes", DELTA: f"{name}/delta"}


class Publisher:
    """Publishes the versions of one model in all forms that are worth it.

    Each comes as the file itself and, where it is a safetensors file, as a delta against the version before and, every
    so many versions, as byte planes. The first version after a start has byte planes and no delta.

    Args:
        origin: What serves them, started.
        folder: Where encoded forms lie.
        name: Of the model.
        every: Versions from one snapshot to the next.
        shard_size: Bytes of a shard of each form.

    Raises:
        NodeError: SHC_NAME.
    """

    def __init__(
        self,
        origin: Origin,
        folder: Path,
        name: str = "weights",
        *,
        every: int = 5,
        shard_size: int = limits.DEFAULT_SHARD,
    ) -> None:
        self._origin, self._folder, self._every, self._shard_size = origin, folder, every, shard_size
        self._names = forms(check_name(name))
        self._before: Parent | None = None
        self._open: FileRanges | None = None
        self._deltas = 0

    async def publish(self, path: Path, version: str | None = None) -> tuple[Published, ...]:
        """Publish a file in all forms that are worth it; the file itself first, while it is still hashed.

        The file must not be written into afterwards; it may be moved, removed, or replaced by another of its name.

        Raises:
            NodeError: As :meth:`shardcast.http.origin.Origin.publish`; STO_….
        """
        ranges = await asyncio.to_thread(FileRanges, path)
        try:
            index = await asyncio.to_thread(_index, ranges)
            done = await self._publish(path, ranges, index, version)
        except BaseException:
            ranges.close()
            raise
        self.close()
        if index is None:
            ranges.close()
        else:
            self._before = Parent(done[0].result, ranges)
            self._open = ranges
        return done

    def close(self) -> None:
        """Let the last version go, which is kept open to be the next one's parent."""
        self._before = None
        if self._open is not None:
            self._open.close()
            self._open = None

    async def _publish(
        self, path: Path, ranges: FileRanges, index: TensorIndex | None, version: str | None
    ) -> tuple[Published, ...]:
        short = index if index is not None and len(index) <= _MOST_INDEX else None
        delta: Decoded | None = None
        into = {encoding: self._folder / f"next.{encoding}" for encoding in (DELTA, PLANES)}
        if index is not None and self._before is not None:
            # Before anything is announced: who waits for the version then finds its delta beside the file.
            delta = await asyncio.to_thread(encode_file, ranges, into[DELTA], self._before)
            self._deltas += 1
        raw = self._names[RAW]
        under_way = [
            await self._origin.publish(path, raw, version=version, tensors=short, shard_size=self._shard_size)
        ]
        label = under_way[0].version
        if delta is not None:
            under_way.append(await self._announce(into[DELTA], label, delta, short))
        if index is not None and wants_snapshot(self._deltas, self._every):
            planes = await asyncio.to_thread(encode_file, ranges, into[PLANES])
            under_way.append(await self._announce(into[PLANES], label, planes, short))
            self._deltas = 0
        done = [await publication.done() for publication in under_way]
        for encoded in into.values():
            encoded.unlink(missing_ok=True)  # the origin has them open for as long as it serves them
        return tuple(done)

    async def _announce(
        self, path: Path, version: str, decoded: Decoded, tensors: TensorIndex | None
    ) -> Publication:
        name = self._names[decoded.encoding]
        return await self._origin.publish(
            path, name, version=version, decoded=decoded, tensors=tensors, shard_size=self._shard_size
        )


def _index(ranges: FileRanges) -> TensorIndex | None:
    """The tensors of a file; None if it is no safetensors file."""
    try:
        return index_of(ranges)
    except NodeError as error:
        if error.code is not Code.SHC_TENSORS:
            raise
        return None


@dataclass(frozen=True, slots=True)
class Brought:
    """A version that is there.

    Attributes:
        version: Its label.
        serial: The place of its newest form in the order of versions.
        file: Where it lies, and its digest.
        way: What was fetched for it, in order; nothing if it was there.
        bytes: That came over the network.
        refused: Why cheaper ways were left.
    """

    version: str
    serial: int
    file: Held
    way: tuple[Offer, ...]
    bytes: int
    refused: tuple[NodeError, ...]


class Library:
    """The versions of one model on this disk, each a file that is named by its digest.

    Args:
        folder: Where they lie. What is there already is used.
        publisher: Whose versions they are.
        name: Of the model.
        keep: Versions that are kept, as parents of the next ones.
    """

    def __init__(self, folder: Path, publisher: PeerId, name: str = "weights", *, keep: int = 2) -> None:
        self._folder, self._publisher, self._keep = folder, publisher, keep
        self._names = forms(check_name(name))

    async def bring(
        self,
        sources: Iterable[Source],
        *,
        newer_than: int = 0,
        patience: timedelta = limits.PATIENCE,
        progress: Callable[[Progress], None] | None = None,
    ) -> Brought:
        """Bring the newest version by the way over which the fewest bytes travel from what is here.

        An object that turns out wrong, or that nobody brings, is left out, and the next cheapest way is taken.

        Args:
            sources: Servers.
            newer_than: The serial of the version that is there already.
            patience: How long nothing may come.
            progress: Called after every shard of what is fetched.

        Raises:
            NodeError: SHC_NO_HOLDER, SHC_MANIFEST, SHC_ENCODING: no version could be had, for the first reason; STO_….
        """
        known = tuple(sources)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, self._folder) from error
        fetched, failed = 0, dict[str, NodeError]()
        async with News(known) as news:
            while True:
                version, way = await self._choose(news, newer_than, failed, patience)
                for offer in way:
                    try:
                        fetched += await self._take(
                            known, version.forms[offer.name], offer, patience, progress
                        )
                    except NodeError as error:
                        if error.code not in (Code.SHC_NO_HOLDER, Code.SHC_MANIFEST, Code.SHC_ENCODING):
                            raise
                        failed[offer.name] = error
                        break
                else:
                    file = self._file(version.result)
                    await asyncio.to_thread(self._tidy, file.path)
                    return Brought(version.label, version.serial, file, way, fetched, tuple(failed.values()))

    async def _choose(
        self, news: News, newer_than: int, failed: dict[str, NodeError], patience: timedelta
    ) -> "tuple[_Version, Way]":
        """The newest version to which there is a way, and the cheapest one."""
        deadline = monotonic() + patience.total_seconds()
        grace: float | None = None
        while True:
            versions = _versions(news.entries(), self._publisher, self._names)
            offers = [offer for version in versions for offer in version.offers if offer.name not in failed]
            held = await asyncio.to_thread(self._digests)
            forms = {name: entry for version in versions for name, entry in version.forms.items()}
            now = monotonic()
            for version in versions:
                way = cheapest_way(version.result, held, offers) if version.oldest > newer_than else None
                if way is not None:
                    grace = now + _GRACE if grace is None else grace
                    if news.everyone_heard or now >= grace:
                        return replace(version, forms=forms), way
                    break
            else:
                reason = next(iter(failed.values()), None)
                if now > deadline or news.hopeless or (reason is not None and news.everyone_heard):
                    reason = reason or next(iter(news.failures.values()), None)
                    raise reason or NodeError(Code.SHC_NO_HOLDER, "No server has a newer version.")
            await news.change(_GRACE if grace is not None else min(1.0, max(0.01, deadline - now)))

    async def _take(
        self,
        sources: tuple[Source, ...],
        entry: Entry,
        offer: Offer,
        patience: timedelta,
        progress: Callable[[Progress], None] | None,
    ) -> int:
        """Fetch an object and decode it; the bytes that came."""
        file = self._file(offer.result)
        raw = entry.encoding == RAW
        into = file.path if raw else self._folder / f"{entry.identifier}.{entry.encoding}"
        expect = Expect(publisher=self._publisher, version=entry.version, encodings=(entry.encoding,))
        fetched = await fetch_version(sources, into, expect, entry.name, patience=patience, progress=progress)
        header = fetched.manifest.header
        try:
            if fetched.manifest.result_digest != offer.result or header.parent != offer.parent:
                raise NodeError(
                    Code.SHC_MANIFEST, f"{entry.name} {entry.version} is another file than listed."
                )
            if not raw:
                decoded = Decoded(header.encoding, header.result_size, offer.result, header.parent)
                parent = self._file(offer.parent) if offer.parent is not None else None
                await asyncio.to_thread(_decode, into, file.path, decoded, parent)
        except NodeError:
            into.unlink(missing_ok=True)
            raise
        if not raw:
            into.unlink(missing_ok=True)
        return fetched.bytes

    def _file(self, digest: bytes) -> Held:
        return Held(self._folder / digest.hex(), digest)

    def _digests(self) -> frozenset[bytes]:
        names = [path.name for path in self._folder.glob("*") if _FILE.fullmatch(path.name)]
        return frozenset(bytes.fromhex(name) for name in names)

    def _tidy(self, newest: Path) -> None:
        """Keep the newest files, and nothing that was begun. What others laid there is theirs."""
        os.utime(newest)
        ours = [path for path in self._folder.iterdir() if _OURS.fullmatch(path.name)]
        files = sorted(ours, key=lambda path: -path.stat().st_mtime_ns)
        kept = [path for path in files if _FILE.fullmatch(path.name)][: self._keep]
        for path in files:
            if path not in kept:
                path.unlink()


@dataclass(frozen=True, slots=True)
class _Version:
    """A version as servers list it.

    Attributes:
        label: Its version label.
        result: Digest of the file.
        oldest: The first serial of its forms.
        serial: The last one.
        forms: Entries by identifier.
        offers: The same, to choose from; each has its identifier for a name.
    """

    label: str
    result: bytes
    oldest: int
    serial: int
    forms: dict[str, Entry]
    offers: tuple[Offer, ...]


def _versions(entries: Iterable[Entry], publisher: PeerId, names: dict[str, str]) -> list[_Version]:
    """Versions whose file is known, newest first. One closed form tells what all forms of a version decode to."""
    labels: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.author == publisher and names.get(entry.encoding) == entry.name:
            labels.setdefault(entry.version, []).append(entry)
    found = []
    for label, forms in labels.items():
        results = sorted({entry.result for entry in forms if entry.result})
        for result in map(bytes.fromhex, results):  # more than one only if a server lies
            offers = tuple(
                Offer(e.identifier, e.size, result, bytes.fromhex(e.parent) if e.parent else None)
                for e in forms
                if e.result in ("", result.hex())
            )
            serials = [entry.serial for entry in forms]
            by_name = {entry.identifier: entry for entry in forms}
            found.append(_Version(label, result, min(serials), max(serials), by_name, offers))
    return sorted(found, key=lambda version: -version.serial)


def _decode(stream: Path, into: Path, decoded: Decoded, parent: Held | None) -> None:
    with FileRanges(stream) as ranges:
        decode_file(ranges, into, decoded, parent)
