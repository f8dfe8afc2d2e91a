"""Publishing files: an origin hashes and serves them at the same time, from where they lie.

What it published is found again after a restart, as long as the files are as they were. Serials grow with the clock and
past everything that the folder remembers, so that a version is never used twice, even by an origin whose folder is
gone.
"""

import asyncio
import contextlib
import json
import os
import ssl
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from protocol.errors import Code, NodeError
from protocol.files import lock_folder, storage_error, write_whole
from protocol.identity import Signer
from protocol.units import PeerId
from shardcast import limits
from shardcast.digest import FileDigest
from shardcast.growth import GrowingManifest
from shardcast.header import Decoded, Header
from shardcast.http.catalogue import Catalogue, Held, held_on_disk, stamp_of
from shardcast.http.door import Access
from shardcast.http.server import Server
from shardcast.http.source import THREADS
from shardcast.names import check_name, check_version
from shardcast.tensors import TensorIndex

_SIGN_FIRST = 0.02
"""Seconds between two signatures of a growing manifest at first; later a hundredth of the time that it has grown."""
_READ = 512 * limits.KIB
"""Bytes that are read and hashed at a time: few enough to stay in a processor's cache."""
_GROWING = timedelta(milliseconds=20)
"""How often a file that is still written is looked at."""


@dataclass(frozen=True, slots=True)
class Published:
    """A version that an origin serves.

    Attributes:
        identifier: The link of its header.
        name: Of the object.
        version: Its label.
        serial: Its place in the order of versions.
        digest: Of its manifest.
        result: Digest of the file that it is or decodes to.
    """

    identifier: str
    name: str
    version: str
    serial: int
    digest: bytes
    result: bytes


class Publication:
    """A version that is being published: others may fetch it already.

    Attributes:
        identifier: The link of its header.
        version: Its label.
        serial: Its place in the order of versions.
    """

    def __init__(self, held: Held, task: "asyncio.Task[Published]") -> None:
        entry = held.entry
        self.identifier, self.version, self.serial = held.identifier, entry.version, entry.serial
        self._task = task

    async def done(self) -> Published:
        """Wait for the close.

        Raises:
            NodeError: The file could not be read to its end; the version is served no more.
        """
        return await asyncio.shield(self._task)


class Origin:
    """Publishes files under one identity.

    Args:
        folder: Where it remembers what it published.
        signer: Who it is.
        keep: Versions of each name; older ones go once nobody reads them.
        access: Who may fetch.

    Attributes:
        server: What serves the files.
    """

    def __init__(
        self, folder: Path, signer: Signer, *, keep: int = limits.KEEP, access: Access | None = None
    ) -> None:
        self.folder = folder
        self.catalogue = Catalogue()
        self.server = Server(self.catalogue, access, self._check)
        self._signer, self._keep = signer, keep
        self._stamps: dict[str, tuple[int, int]] = {}  # size and time of change of a file when it was hashed
        self._tasks: set[asyncio.Task[Published]] = set()
        self._last_serial = 0
        self._lock = -1

    @property
    def publisher(self) -> PeerId:
        """Whom clients have to expect."""
        return self._signer.peer_id

    async def start(self, host: str | None = None, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Serve what was published before, and what will be.

        Raises:
            NodeError: STO_UNWRITABLE, STO_LOCKED, NET_PORT_IN_USE.
        """
        self._lock = lock_folder(self.folder)
        try:
            self._load()
            await self.server.start(host, port, tls)
        except BaseException as error:
            self._let_go()
            if isinstance(error, OSError):
                raise storage_error(error, self.folder) from error
            raise

    async def stop(self) -> None:
        """Serve nothing more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.server.stop()
        self._let_go()

    def _let_go(self) -> None:
        self.catalogue.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def publish(
        self,
        path: Path,
        name: str = "weights",
        *,
        version: str | None = None,
        size: int | None = None,
        shard_size: int = limits.DEFAULT_SHARD,
        decoded: Decoded | None = None,
        tensors: TensorIndex | None = None,
    ) -> Publication:
        """Announce a file at once and serve it while it is hashed.

        The file must not be changed afterwards; it may be moved or removed.

        Args:
            path: The file. With `size` it may still be written, from its beginning to its end.
            name: What it is called.
            version: Its label; made from the serial by default.
            size: Bytes that it is going to have.
            shard_size: Bytes of a shard.
            decoded: What it decodes to, if it is encoded.
            tensors: Where each tensor lies in the decoded file.

        Raises:
            NodeError: SHC_NAME for a bad name or a version that is there already; SHC_MANIFEST for sizes that cannot
                be; STO_… when the file cannot be read or the folder not be written.
        """
        check_name(name)
        serial = await asyncio.to_thread(self._next_serial)
        label = check_version(version or f"v{serial}")
        if any(e.name == name and e.version == label for e in self.catalogue.entries()):
            raise NodeError(
                Code.SHC_NAME, f"Version {label} of {name} was published already.",
                fix="Choose another version: what is published never changes.",
            )  # fmt: skip
        try:
            found = path.stat().st_size
            total = found if size is None else size
            header = Header(
                name, label, total, min(shard_size, total) or 0,
                encoding=decoded.encoding if decoded else "raw",
                result_size=decoded.size if decoded else total,
                parent=decoded.parent if decoded else None,
                tensors=tensors, author=self.publisher, serial=serial,
            )  # fmt: skip
            if total > header.shard_size * limits.MAX_SHARDS:
                raise NodeError(Code.SHC_MANIFEST, f"{total} bytes are too many for shards of {shard_size}.")
            held = Held(GrowingManifest.begin(header, self._signer), path)
        except OSError as error:
            raise storage_error(error, path) from error
        self.catalogue.add(held)
        hashing = _Hashing(held, self._signer, decoded, asyncio.get_running_loop())
        task = asyncio.create_task(self._hash(held, hashing, path))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        for surplus in self.catalogue.surplus(self._keep):
            if surplus.whole:
                self._forget(surplus)
        return Publication(held, task)

    async def _hash(self, held: Held, hashing: "_Hashing", path: Path) -> Published:
        try:
            await hashing.run()
            digest, result = held.growing.digest, held.growing.result_digest
            assert digest is not None and result is not None
            self._stamps[held.identifier] = stamp_of(held.file)
            held.whole = True
            await asyncio.to_thread(self._remember, held, path.resolve())
        except BaseException:
            self.catalogue.remove(held.identifier)
            raise
        self.catalogue.changed()
        entry = held.entry
        return Published(held.identifier, entry.name, entry.version, entry.serial, digest, result)

    async def _check(self, held: Held, index: int) -> bool:
        """A published file that somebody wrote to is served no more."""
        stamp = self._stamps.get(held.identifier)
        if stamp is None or stamp == stamp_of(held.file):
            return True
        self._forget(held)
        return False

    # ---- what the folder remembers

    def _next_serial(self) -> int:
        path = self.folder / "serial"
        with contextlib.suppress(OSError, ValueError):
            self._last_serial = max(self._last_serial, int(path.read_text()))
        self._last_serial = max(self._last_serial + 1, time.time_ns() // 1_000_000)
        write_whole(path, [str(self._last_serial).encode()])
        return self._last_serial

    def _remember(self, held: Held, path: Path) -> None:
        size, stamp = self._stamps[held.identifier]
        write_whole(self.folder / f"{held.identifier}.manifest", [bytes(held.growing.text)])
        where = {"path": str(path), "size": size, "stamp": stamp}
        write_whole(self.folder / f"{held.identifier}.json", [json.dumps(where).encode()])

    def _load(self) -> None:
        for marker in sorted(self.folder.glob("*.json")):
            manifest = marker.with_suffix(".manifest")
            try:
                where = json.loads(marker.read_bytes())
                stamp = int(where["size"]), int(where["stamp"])
                held = held_on_disk(manifest, Path(where["path"]))
                if stamp != stamp_of(held.file):
                    held.close()
                    raise ValueError("the file changed")
            except (OSError, ValueError, KeyError, TypeError, NodeError):
                marker.unlink(missing_ok=True)
                manifest.unlink(missing_ok=True)
                continue
            self._stamps[held.identifier] = stamp
            self._last_serial = max(self._last_serial, held.entry.serial)
            self.catalogue.add(held)

    def _forget(self, held: Held) -> None:
        self.catalogue.remove(held.identifier)
        self._stamps.pop(held.identifier, None)
        for suffix in (".json", ".manifest"):
            with contextlib.suppress(OSError):
                (self.folder / f"{held.identifier}{suffix}").unlink(missing_ok=True)


class _Hashing:
    """Hashes a file in a thread, shard by shard, and lets the manifest grow in the event loop."""

    def __init__(
        self, held: Held, signer: Signer, decoded: Decoded | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._held, self._signer, self._decoded, self._loop = held, signer, decoded, loop
        self._file: BinaryIO = held.file
        self._ended = False
        self._ready: list[tuple[int, bytes]] = []  # hashed, not in the manifest yet

    async def run(self) -> None:
        """Hash to the end and close."""
        try:
            result = await self._loop.run_in_executor(THREADS, self._hash)
        finally:
            self._ended = True
        self._held.growing.close(self._decoded.digest if self._decoded else result, self._signer)
        self._held.changed()

    def _hash(self) -> bytes | None:
        """The digest of the file, where its shards do not say it."""
        header = self._held.growing.header
        assert header is not None
        pieces = header.shard_size == limits.PIECE or header.size <= min(header.shard_size, limits.PIECE)
        whole = FileDigest() if self._decoded is None and not pieces else None
        buffer = memoryview(bytearray(min(_READ, header.shard_size)))
        began = signed = time.monotonic()
        at = 0
        while at < header.size:
            size = min(header.shard_size, header.size - at)
            shard = blake3()
            for start in range(at, at + size, _READ):
                piece = buffer[: min(_READ, at + size - start)]
                self._read(piece, start)
                shard.update(piece)
                if whole is not None:
                    whole.update(piece)
            self._ready.append((size, shard.digest()))
            at += size
            now = time.monotonic()
            if now - signed >= max(_SIGN_FIRST, (now - began) / 100) or at in (size, header.size):
                self._hand_over()
                signed = now
        return whole.digest() if whole is not None else None

    def _read(self, piece: memoryview, at: int) -> None:
        """Fill a buffer from the file, and wait for bytes that are not written yet."""
        while piece:
            if self._ended:
                raise NodeError(Code.STO_CORRUPT, "It is not published any more.")
            try:
                count = os.preadv(self._file.fileno(), [piece], at)
            except (OSError, ValueError) as error:
                raise NodeError(Code.STO_CORRUPT, f"The file cannot be read: {error}.") from error
            if not count:
                self._hand_over()
                time.sleep(_GROWING.total_seconds())
            piece, at = piece[count:], at + count

    def _hand_over(self) -> None:
        if self._ready:
            self._loop.call_soon_threadsafe(self._flush, self._ready)
            self._ready = []

    def _flush(self, ready: list[tuple[int, bytes]]) -> None:
        growing = self._held.growing
        if not ready or growing.closed:
            return
        first = growing.count
        for size, digest in ready:
            growing.append(size, digest)
        growing.sign(self._signer)
        for index in range(first, growing.count):
            self._held.arrived(index)
        self._held.changed()
