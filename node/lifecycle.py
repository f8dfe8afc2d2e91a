"""A node's life: one process per data directory, the first stop signal drains, the second ends it now."""

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType, TracebackType

import psutil

from node import early
from node.children import end_descendants
from protocol.errors import Code, NodeError

LOCK_FILE = "node.lock"

RUNS = Path("runs")
"""Where nodes' data directories lie unless told otherwise."""
_LOCK_SCHEMA = 1
_LOCK_BYTES = 4096


SAME_SIGNAL = timedelta(milliseconds=500)
"""A repeat within this time is the same wish: terminals, `make` and `timeout` pass one Ctrl-C on to a whole group."""

_held: set[Path] = set()
_held_guard = threading.Lock()


@dataclass(frozen=True)
class Holder:
    """The process that holds a data directory. `pid` is 0 in the moment before it has written its name."""

    pid: int
    started: float

    def process(self) -> psutil.Process | None:
        """The living process, or None; never another one that got the same number later."""
        try:
            process = psutil.Process(self.pid) if self.pid > 0 else None
            return process if process and abs(process.create_time() - self.started) < 1 else None
        except psutil.Error:
            return None


def prepare_folder(folder: Path) -> None:
    """Make the data directory (mode 0700) where it is missing, and make sure that it can be read and written.

    Raises:
        NodeError: STO_UNWRITABLE, STO_FULL.
    """
    probe = folder / f".probe-{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.listdir(folder)
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise _storage_error(folder, error) from error


def _storage_error(folder: Path, error: OSError) -> NodeError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NodeError(Code.STO_FULL, f"There is no space left to write in {folder}.")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return NodeError(
            Code.STO_UNWRITABLE, f"{folder} is not a directory.", fix="Name another directory with --dir."
        )
    reason = error.strerror or str(error)
    return NodeError(Code.STO_UNWRITABLE, f"The data directory {folder} cannot be used: {reason}.")


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold a data directory for this process. Within one process this may be nested.

    The lock is the kernel's: it goes with the process, also after `kill -9`, so a file that was left behind
    locks nothing. The file itself stays, for removing it would let two processes lock two files of one name.

    Raises:
        NodeError: STO_LOCKED naming the holder's process id; STO_UNWRITABLE, STO_FULL.
    """
    prepare_folder(folder)
    key = folder.resolve()
    with _held_guard:
        nested = key in _held
        descriptor = -1 if nested else _lock(folder)
        _held.add(key)
    try:
        yield
    finally:
        if not nested:
            with _held_guard:
                _held.discard(key)
                os.close(descriptor)


def _lock(folder: Path) -> int:
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _storage_error(folder, error) from error
    try:
        _flock_soon(descriptor)
        mine = {"schema": _LOCK_SCHEMA, "pid": os.getpid(), "started": psutil.Process().create_time()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(mine).encode(), 0)
        return descriptor
    except BlockingIOError as error:
        pid = _read_holder(descriptor).pid
        os.close(descriptor)
        who = f"process {pid}" if pid else "another process"
        raise NodeError(
            Code.STO_LOCKED,
            f"The data directory {folder} is in use by {who}.",
            fix=f"Stop that node with `intellect-node stop --dir {folder}`, or use another --dir.",
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise _storage_error(folder, error) from error


def _flock_soon(descriptor: int) -> None:
    """Lock, or raise BlockingIOError; outlasts the moment in which `holder` looks."""
    for patience in (0.02, 0.04, 0.08, 0.0):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not patience:
                raise
            time.sleep(patience)


def holder(folder: Path) -> Holder | None:
    """Who holds the data directory now, or None. Needs only the right to read."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A shared lock that is given back at once; a node that starts in this very moment tries for longer.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _read_holder(descriptor)
    finally:
        os.close(descriptor)


def _read_holder(descriptor: int) -> Holder:
    try:
        content = json.loads(os.pread(descriptor, _LOCK_BYTES, 0))
        return Holder(int(content["pid"]), float(content["started"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder(0, 0.0)


def stop_now(number: int) -> None:
    """End this process and all below it without another step. What is on disk is whole: it is written that way."""
    print("Stopping now.", file=sys.stderr, flush=True)
    with contextlib.suppress(Exception):
        end_descendants()
    os._exit(128 + number)


class StopSignals:
    """Turns SIGTERM, SIGINT and SIGHUP into a drain, and the next one into an immediate end.

    Use it as a context manager in the main thread, around or inside the event loop. The handler runs also while the
    loop is busy, so a second Ctrl-C always works. A ``stop`` over the status socket calls `request` and is the first.

    Args:
        on_drain: Called once with the signal's name or the reason, in the loop's thread if `loop` is given.
        loop: The running loop, if any.
        on_now: What the second signal does; it gets the signal's number.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        on_drain: Callable[[str], None],
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        on_now: Callable[[int], None] = stop_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_drain = on_drain
        self._loop = loop
        self._on_now = on_now
        self._clock = clock
        self._asked_at: float | None = None
        self._before: dict[int, object] = {}

    @property
    def requested(self) -> bool:
        """Whether somebody has asked the node to stop."""
        return self._asked_at is not None

    def request(self, reason: str) -> None:
        """Begin to drain, once."""
        if self._asked_at is not None:
            return
        self._asked_at = self._clock()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._on_drain, reason)
        else:
            self._on_drain(reason)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked_at is None:
            self.request(signal.Signals(number).name)
        elif self._clock() - self._asked_at >= SAME_SIGNAL.total_seconds():
            self._on_now(number)

    def __enter__(self) -> "StopSignals":
        for number in early.SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # started with nohup: it is meant to outlive its terminal
            self._before[number] = early.before(number, signal.signal(number, self._handle))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before.clear()


def running(folder: Path | None) -> list[Path]:
    """Data directories of nodes to talk to: the named one, else those below runs/ that a process holds.

    Raises:
        NodeError: ``SYS_NOT_RUNNING``.
    """
    if folder is not None:
        return [folder]
    locks = [lock for depth in ("*", "*/*", "*/*/*") for lock in RUNS.glob(f"{depth}/{LOCK_FILE}")]
    found = sorted(lock.parent for lock in locks if holder(lock.parent) is not None)
    if not found:
        raise NodeError(Code.SYS_NOT_RUNNING, f"No node runs below {RUNS.absolute()}.")
    return found
