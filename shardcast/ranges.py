"""Bytes that are read by range: of a file, whole or still arriving."""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from threading import Condition
from types import TracebackType
from typing import Protocol

from protocol.errors import Code, NodeError
from protocol.files import read_exactly, storage_error


class Ranges(Protocol):
    """A file of known size.

    Attributes:
        size: Its bytes.
    """

    @property
    def size(self) -> int:
        """Bytes of the file."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset` on; blocks until they are there.

        Raises:
            NodeError: They cannot be had.
        """
        ...


class Arrivals:
    """Which bytes of a growing file are there. Whoever writes says so; whoever reads waits. Safe in any thread."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._begins: list[int] = []  # of each run of bytes that is there, in order
        self._ends: list[int] = []
        self._failure: NodeError | None = None
        self._done = False

    def add(self, start: int, end: int) -> None:
        """Say that bytes `start` to `end` are there, verified, and will not change. To say it twice is no error."""
        with self._changed:
            first = bisect_left(self._ends, start)  # runs that touch this one become one with it
            last = bisect_right(self._begins, end)
            if first < last:
                start, end = min(start, self._begins[first]), max(end, self._ends[last - 1])
            self._begins[first:last], self._ends[first:last] = [start], [end]
            self._changed.notify_all()

    def finish(self) -> None:
        """Say that all bytes are there and the whole is what it should be."""
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def fail(self, error: NodeError) -> None:
        """Say that no more will come; whoever waits gets `error`."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def wait(self, start: int, end: int) -> None:
        """Block until bytes `start` to `end` are there.

        Raises:
            NodeError: What was given to `fail`.
        """
        self._until(lambda: self._done or start == end or self._has(start, end))

    def wait_whole(self) -> None:
        """Block until `finish` was called.

        Raises:
            NodeError: What was given to `fail`.
        """
        self._until(lambda: self._done)

    def _until(self, there: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or there())
            if self._failure is not None and not there():
                raise self._failure

    def _has(self, start: int, end: int) -> bool:
        run = bisect_right(self._begins, start) - 1
        return run >= 0 and end <= self._ends[run]


class FileRanges:
    """A file that lies whole, or arrives, at a path. A context manager; readable from several threads.

    Args:
        path: Where it lies. It may be renamed meanwhile.
        arrivals: What of it is there; all, unless given.
        size: Its bytes when it is whole, where it is not yet so long.

    Raises:
        NodeError: STO_… when it cannot be read.
    """

    def __init__(self, path: Path, arrivals: Arrivals | None = None, size: int | None = None) -> None:
        self.path = path
        self._arrivals = arrivals
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._size = os.fstat(self._descriptor).st_size if size is None else size
        except OSError as error:
            raise storage_error(error, path) from error

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    def fileno(self) -> int:
        """The open file."""
        return self._descriptor

    def wait(self, start: int, end: int) -> None:
        """Block until these bytes are there.

        Raises:
            NodeError: What `Arrivals.fail` was given.
        """
        if self._arrivals is not None:
            self._arrivals.wait(start, end)

    def wait_whole(self) -> None:
        """Block until the file is whole, and what it should be.

        Raises:
            NodeError: What `Arrivals.fail` was given.
        """
        if self._arrivals is not None:
            self._arrivals.wait_whole()

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset` on.

        Raises:
            NodeError: STO_CORRUPT, when the file is shorter; what `Arrivals.fail` was given.
        """
        self.wait(offset, offset + length)
        try:
            data = read_exactly(self._descriptor, length, offset)
        except OSError as error:
            raise storage_error(error, self.path) from error
        if len(data) != length:
            raise NodeError(Code.STO_CORRUPT, f"{self.path} is shorter than it should be.")
        return data

    def close(self) -> None:
        """Let the file go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> "FileRanges":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
