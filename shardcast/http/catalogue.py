"""What a server has: objects by the link of their header, whole or growing, each in one file.

All of it belongs to one event loop. Shards that are there lie in the object's file at their place; those that are
coming are pieces in memory, which readers may see as they grow.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from protocol.clock import monotonic
from shardcast import limits
from shardcast.growth import GrowingManifest
from shardcast.http.listing import Entry
from shardcast.piece import Piece


class Held:
    """One object of a server.

    Args:
        growing: Its manifest, so far. The header is there.
        path: The file that shards lie in.

    Attributes:
        growing: Its manifest.
        pieces: Shards that are coming, by index.
        whole: Whether every shard of the closed manifest is there.
    """

    def __init__(self, growing: GrowingManifest, path: Path) -> None:
        self.growing = growing
        self.pieces: dict[int, Piece] = {}
        self.whole = False
        self._file: BinaryIO = open(path, "rb", buffering=0)  # noqa: SIM115 - kept while the object is
        self._there = bytearray()
        self._index: dict[bytes, int] = {}
        self._indexed = 0
        self._readers = 0
        self._asked = -1e9
        self._change = asyncio.Event()

    @property
    def identifier(self) -> str:
        """The link of the header."""
        return self.growing.identifier

    @property
    def entry(self) -> Entry:
        """What the list says of it."""
        header = self.growing.header
        assert header is not None
        return Entry.of(self.identifier, header, self.growing.closed, self.growing.result_digest)

    @property
    def file(self) -> BinaryIO:
        """The open file."""
        return self._file

    @property
    def being_read(self) -> bool:
        """Whether somebody reads it, or did a moment ago and will go on."""
        return self._readers > 0 or monotonic() - self._asked < limits.READ_RECENTLY.total_seconds()

    def find(self, digest: bytes) -> int | None:
        """The index of a shard by its hash, as far as the manifest is believed."""
        for shard in self.growing.since(self._indexed):
            self._index.setdefault(shard.digest, shard.index)
        self._indexed = self.growing.count
        return self._index.get(digest)

    def has(self, index: int) -> bool:
        """Whether a shard is there."""
        return index < len(self._there) and bool(self._there[index])

    def arrived(self, index: int) -> None:
        """A shard is in the file now, and right."""
        if index >= len(self._there):
            self._there.extend(bytes(max(index + 1 - len(self._there), 64)))
        self._there[index] = 1

    def all_arrived(self) -> None:
        """Every shard that the manifest names is in the file, and right."""
        for index in range(self.growing.count):
            self.arrived(index)

    def lost(self, index: int) -> None:
        """A shard is not what it was."""
        self._there[index] = 0
        self.whole = False

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Keeps the object from being removed."""
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            self._asked = monotonic()

    def changed(self) -> None:
        """Wake everybody who waits for a change."""
        self._change.set()
        self._change = asyncio.Event()

    async def change(self) -> None:
        """Wait until anything changes."""
        await self._change.wait()

    def close(self) -> None:
        """Let the file go. Whoever still sends from it has the bytes until then."""
        self._file.close()

    # a watcher of a drawing

    def coming(self, piece: Piece) -> None:
        """See :class:`shardcast.draw.Watcher`."""
        now = self.pieces.get(piece.shard.index)
        if now is None or now.verdict is not None:
            self.pieces[piece.shard.index] = piece
        self.changed()

    def grew(self, piece: Piece) -> None:
        """See :class:`shardcast.draw.Watcher`."""
        index = piece.shard.index
        if piece.verdict is not None:
            if piece.verdict:
                self.arrived(index)
            if piece.verdict or self.pieces.get(index) is piece:
                self.pieces.pop(index, None)
        self.changed()


class Catalogue:
    """The objects of one server."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self._boot = secrets.token_hex(6)
        self._revision = 0
        self._change = asyncio.Event()

    @property
    def cursor(self) -> str:
        """Changes whenever the list does, and with every start."""
        return f"{self._boot}.{self._revision}"

    def entries(self) -> list[Entry]:
        """The list, newest first."""
        entries = [held.entry for held in self.held.values()]
        return sorted(entries, key=lambda e: (e.name, -e.serial, e.identifier))[: limits.MAX_VERSIONS]

    def add(self, held: Held) -> None:
        """Have an object from now on."""
        self.held[held.identifier] = held
        self.changed()

    def remove(self, identifier: str) -> None:
        """Have it no longer."""
        held = self.held.pop(identifier, None)
        if held is not None:
            held.close()
            held.changed()
            self.changed()

    def close(self) -> None:
        """Let all files go."""
        for held in self.held.values():
            held.close()

    def find(self, digest: bytes) -> tuple[Held, int] | None:
        """Where a shard is, preferably one that is there already."""
        best = None
        for held in self.held.values():
            index = held.find(digest)
            if index is None:
                continue
            if held.has(index):
                return held, index
            best = best or (held, index)
        return best

    def changed(self) -> None:
        """Wake everybody who waits for another list."""
        self._revision += 1
        self._change.set()
        self._change = asyncio.Event()

    async def change(self) -> None:
        """Wait for another list."""
        await self._change.wait()

    def surplus(self, keep: int, most_bytes: int | None = None) -> list[Held]:
        """Versions that may go, oldest first: more of one name than are kept, or than fit, and read by nobody."""
        going: list[Held] = []
        staying = 0
        kept: dict[tuple[str, str], int] = {}
        for held in sorted(self.held.values(), key=lambda h: -h.entry.serial):
            series = (held.entry.name, held.entry.author)
            count = kept.get(series, 0)
            fits = most_bytes is None or staying + held.entry.size <= most_bytes
            if held.being_read or (count < keep and fits):
                kept[series] = count + 1
                staying += held.entry.size
            else:
                going.append(held)
        return going[::-1]

    def bytes(self) -> int:
        """Bytes of all objects."""
        return sum(held.entry.size for held in self.held.values())


def held_on_disk(manifest: Path, data: Path) -> Held:
    """A whole object as an earlier start left it: its manifest, named after its header's link, and its file.

    Nothing is hashed: who serves it has to know that the file is as it was.

    Raises:
        OSError, ValueError, NodeError: It is not there, or not what it should be.
    """
    growing = GrowingManifest()
    growing.feed(manifest.read_bytes())
    if not growing.closed or growing.identifier != manifest.stem:
        raise ValueError("it is not the closed manifest that its name says")
    held = Held(growing, data)
    if stamp_of(held.file)[0] != held.entry.size:
        held.close()
        raise ValueError("the file has another size")
    held.all_arrived()
    held.whole = True
    return held


def stamp_of(file: BinaryIO) -> tuple[int, int]:
    """Size and time of change of a file: while they are the same, it is what was hashed."""
    now = os.fstat(file.fileno())
    return now.st_size, now.st_mtime_ns
