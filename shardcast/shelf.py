"""What a node can serve: whole objects in a folder, each with its manifest, immutable, safe from deletion while read.

An object lies in the folder as two files named after its manifest's digest, never after its own name:
``<digest>.data``, a hard link to the file that was added (no second copy where the file system allows it), and
``<digest>.manifest``, which is written last, by rename. A folder that is opened again therefore holds exactly the
objects whose adding was finished; whatever has no manifest is swept away.

The file that was added must not be written to afterwards. If it is, or the disk damages it, its shards no longer agree
with the manifest and are not served: each is checked before it is first sent.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from protocol.errors import Code, NodeError
from protocol.files import read_exactly, storage_error, sync_folder, write_whole
from shardcast.manifest import Manifest
from shardcast.names import check_name

DATA, MANIFEST = ".data", ".manifest"


@dataclass(slots=True, eq=False)
class _Object:
    manifest: Manifest
    data: Path
    readers: int = 0
    descriptor: int = -1  # open while there are readers
    stamp: int = 0  # modification time at which `checked` was true
    checked: set[int] = field(default_factory=set)


class Reading:
    """One object, pinned: until it is let go its bytes can be read, whatever is removed or added meanwhile."""

    def __init__(self, shelf: "Shelf", item: _Object) -> None:
        self._shelf = shelf
        self._item = item

    @property
    def manifest(self) -> Manifest:
        """The object's manifest."""
        return self._item.manifest

    def read(self, index: int, offset: int, length: int) -> bytes:
        """Read up to `length` bytes of a shard, fewer only at its end. Blocking; safe in any thread.

        Raises:
            NodeError: STO_CORRUPT, when the stored bytes are not those of the manifest.
        """
        shard = self._item.manifest.shards[index]
        wanted = max(0, min(length, shard.size - offset))
        with (
            self._shelf._lock
        ):  # a pin of its own: a cancelled caller may let go while this thread still reads
            self._shelf._pin(self._item)
        try:
            self._check(index)
            data = read_exactly(self._item.descriptor, wanted, shard.offset + offset)
        except OSError as error:
            raise storage_error(error, self._item.data) from error
        finally:
            self._shelf._release(self._item)
        if len(data) != wanted:
            raise self._damaged(index)
        return data

    def _check(self, index: int) -> None:
        item = self._item
        stamp = os.fstat(item.descriptor).st_mtime_ns
        if stamp != item.stamp:  # someone wrote to the file: believe nothing of it any more
            item.checked, item.stamp = set(), stamp
        if index not in item.checked:
            shard = item.manifest.shards[index]
            if blake3(read_exactly(item.descriptor, shard.size, shard.offset)).digest() != shard.digest:
                raise self._damaged(index)
            item.checked.add(index)

    def _damaged(self, index: int) -> NodeError:
        name = self._item.manifest.name
        return NodeError(Code.STO_CORRUPT, f"Shard {index} of {name} in {self._item.data} is damaged.")


class Shelf:
    """The objects a node serves, by name.

    Safe to use from several threads of one process; a folder belongs to one process at a time.

    Args:
        folder: Where they lie; made if it is not there. What it held before is served again.

    Raises:
        NodeError: STO_UNWRITABLE or STO_FULL, when the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._objects: dict[str, _Object] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._load()
        except OSError as error:
            raise storage_error(error, folder) from error

    def add(self, manifest: Manifest, path: Path) -> None:
        """Serve the file at `path` under the manifest's name; adding the same object again changes nothing.

        The caller may remove or replace `path` afterwards, but never write into the file itself. Blocking where `path`
        lies on another file system, because then the file is copied.

        Raises:
            NodeError: SHC_MANIFEST, when the manifest is not closed or its size is not the file's; SHC_NAME, when
                another object has this name (remove it first); STO_… when the folder fails.
        """
        if not manifest.closed:
            raise NodeError(Code.SHC_MANIFEST, f"The manifest of {manifest.name} is not closed.")
        stem = self.folder / manifest.digest.hex()
        data, marker = stem.with_suffix(DATA), stem.with_suffix(MANIFEST)
        with self._lock:
            if held := self._objects.get(manifest.name):
                if held.manifest.digest == manifest.digest:
                    return
                raise NodeError(
                    Code.SHC_NAME,
                    f"Another object is served as {manifest.name}.",
                    fix="Remove it first, or choose another name: what is served never changes.",
                )
            try:
                if path.stat().st_size != manifest.size:
                    raise NodeError(
                        Code.SHC_MANIFEST,
                        f"{path} has {path.stat().st_size} bytes, its manifest says {manifest.size}.",
                    )
                _link(path, data)
                write_whole(marker, [manifest.raw])
            except OSError as error:
                raise storage_error(error, path) from error
            self._objects[manifest.name] = _Object(manifest, data)

    def names(self) -> tuple[str, ...]:
        """Every name that is served, in order."""
        with self._lock:
            return tuple(sorted(self._objects))

    def manifest(self, name: str) -> Manifest:
        """The manifest of an object.

        Raises:
            NodeError: SHC_MISSING, when it is not held.
        """
        with self._lock:
            return self._find(name).manifest

    @contextlib.contextmanager
    def open(self, name: str, digest: bytes | None = None) -> Iterator[Reading]:
        """Pin an object for reading.

        Args:
            name: What it is called.
            digest: The manifest's digest, when only that very object will do.

        Raises:
            NodeError: SHC_NAME for a bad name; SHC_MISSING, when it is not held or has another digest.
        """
        check_name(name)
        with self._lock:
            item = self._find(name)
            if digest is not None and item.manifest.digest != digest:
                raise NodeError(Code.SHC_MISSING, f"Another object than the expected one is held as {name}.")
            self._pin(item)
        try:
            yield Reading(self, item)
        finally:
            self._release(item)

    def remove(self, name: str) -> None:
        """Serve an object no longer; whoever is reading it reads on undisturbed. A name that is not held is no error.

        The readers' open file keeps the bytes; the disk gets them back when the last one is done.

        Raises:
            NodeError: STO_UNWRITABLE, when the files cannot be removed.
        """
        check_name(name)
        with self._lock:
            item = self._objects.pop(name, None)
            if item is None:
                return
            try:
                item.data.with_suffix(MANIFEST).unlink(
                    missing_ok=True
                )  # the marker first: never a marker alone
                item.data.unlink(missing_ok=True)
            except OSError as error:
                raise storage_error(error, item.data) from error

    def _pin(self, item: _Object) -> None:
        if not item.readers:
            try:
                item.descriptor = os.open(item.data, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise storage_error(error, item.data) from error
        item.readers += 1

    def _release(self, item: _Object) -> None:
        with self._lock:
            item.readers -= 1
            if not item.readers:
                os.close(item.descriptor)
                item.descriptor = -1

    def _find(self, name: str) -> _Object:
        item = self._objects.get(name)
        if item is None:
            raise NodeError(Code.SHC_MISSING, f"No object {name[:128]} is held here.")
        return item

    def _load(self) -> None:
        for marker in sorted(self.folder.glob("*" + MANIFEST)):
            data = marker.with_suffix(DATA)
            try:
                manifest = Manifest.parse(marker.read_bytes())
                whole = data.stat().st_size == manifest.size and manifest.digest.hex() == marker.stem
            except (NodeError, OSError):
                whole = False
            if whole and manifest.name not in self._objects:
                self._objects[manifest.name] = _Object(manifest, data)
            else:
                marker.unlink()
        kept = {item.data for item in self._objects.values()}
        for leftover in self.folder.iterdir():
            if leftover.suffix in (DATA, ".tmp") and leftover not in kept:
                leftover.unlink()


def _link(path: Path, data: Path) -> None:
    data.unlink(missing_ok=True)
    try:
        os.link(path.resolve(), data)
    except OSError:  # another file system, or one without hard links
        copy = data.with_suffix(".tmp")
        shutil.copyfile(path, copy)
        os.replace(copy, data)
    sync_folder(data.parent)
