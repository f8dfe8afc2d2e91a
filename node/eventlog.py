"""The event log: what happened on a node, one JSON object per line.

Every line has ``schema``, ``t`` (unix seconds) and ``kind``; the rest are the kind's own fields. Writing never fails
the node: what cannot be written is dropped, and that is said once. Reading bears a last line cut off by a crash.
"""

import asyncio
import dataclasses
import json
import logging
import math
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from protocol.errors import Code, NodeError

SCHEMA = 1
FILE = "events.jsonl"
MAX_BYTES = 64 * 1024 * 1024
"""At this size the log is renamed to ``events.jsonl.1``, which replaces an older one, and begun anew."""
MAX_LINE = 64 * 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """One line: when (unix seconds), what kind, and the kind's fields."""

    t: float
    kind: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or `default` where the event has none of that name."""
        return self.fields.get(name, default)


class EventLog:
    """Appends events. Any thread may call `emit`.

    Args:
        path: The file; its folder must exist. What is there already is kept.
        clock: Unix seconds.
        warn: Told once when writing fails, and once when it works again.
        max_bytes: When to begin a new file.
        sinks: Further receivers of each event, such as a live view; one that raises is dropped.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        warn: Callable[[str], None] = _log.warning,
        max_bytes: int = MAX_BYTES,
        sinks: tuple[Callable[[Event], None], ...] = (),
    ) -> None:
        self.path = path
        self.dropped = 0
        self._clock = clock
        self._warn = warn
        self._max_bytes = max_bytes
        self._sinks = list(sinks)
        self._guard = threading.Lock()
        self._descriptor = -1
        self._size = 0
        self._cut = False  # the file may end in half a line, which the next one must not be glued to
        self._failing = False
        self._closed = False

    def add_sink(self, sink: Callable[[Event], None]) -> None:
        """Have one more receiver of each event from now on."""
        self._sinks.append(sink)

    def emit(self, kind: str, /, **fields: Any) -> None:
        """Write one event now. Fields may be anything: what JSON has no word for becomes text, NaN becomes null."""
        event = Event(self._clock(), kind, {name: _plain(value) for name, value in fields.items()})
        with self._guard:
            if self._closed:
                return
            try:
                self._write(event)
            except (OSError, ValueError) as error:
                self._failed(error)
            else:
                if self._failing:
                    self._failing = False
                    self._warn(f"The event log works again; {self.dropped} events were lost.")
            for sink in tuple(self._sinks):
                try:
                    sink(event)
                except Exception:
                    self._sinks.remove(sink)

    def close(self) -> None:
        """Close the file. Later events are dropped silently."""
        with self._guard:
            self._closed = True
            self._release()

    def _write(self, event: Event) -> None:
        line = _line(event)
        if self._descriptor < 0:
            self._open()
        elif self._size + len(line) > self._max_bytes:
            self._release()
            os.replace(self.path, _older(self.path))
            self._open()
        data = b"\n" + line if self._cut else line
        self._cut = True
        written = os.write(self._descriptor, data)  # one call, so that a reader sees whole lines
        self._size += written
        if written != len(data):
            raise OSError(f"only {written} of {len(data)} bytes could be written")
        self._cut = False

    def _open(self) -> None:
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size
        self._cut = self._size > 0 and os.pread(self._descriptor, 1, self._size - 1) != b"\n"

    def _release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _failed(self, error: Exception) -> None:
        self.dropped += 1
        if not self._failing:
            self._failing = True
            self._warn(f"The event log {self.path} cannot be written ({error}); the node goes on without it.")


def read(path: Path) -> Iterator[Event]:
    """All events of a log, oldest first, the renamed older file included. No file, no events.

    Raises:
        NodeError: STO_SCHEMA, for a log of a newer version.
    """
    for part in (_older(path), path):
        yield from Tail(part).new()


class Tail:
    """Reads what a log has gained since the last look. Cheap to call often; never waits.

    Args:
        path: The log; it need not exist yet.
        since_end: Begin at the log's present end instead of its beginning.
    """

    def __init__(self, path: Path, *, since_end: bool = False) -> None:
        self._path = path
        self._rest = b""
        self._skip = False  # inside a line that is longer than a line may be
        try:
            status = path.stat()
        except OSError:
            self._at, self._file = 0, 0
        else:
            self._at, self._file = (status.st_size if since_end else 0), status.st_ino

    def new(self) -> list[Event]:
        """Events whose line is complete now and was not returned before."""
        data = b""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._file or status.st_size < self._at:
                    data += self._end_of_renamed()
                    self._at, self._file = 0, status.st_ino
                file.seek(self._at)
                fresh = file.read()
                self._at += len(fresh)
                data += fresh
        except OSError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._skip and lines:
            lines, self._skip = lines[1:], False
        if len(self._rest) > MAX_LINE:
            self._rest, self._skip = b"", True
        return [event for line in lines if (event := _parse(line)) is not None]

    def _end_of_renamed(self) -> bytes:
        """What the file held that we were reading before a new one took its name."""
        rest = b""
        try:
            with _older(self._path).open("rb") as file:
                if os.fstat(file.fileno()).st_ino == self._file:
                    file.seek(self._at)
                    rest = file.read()
        except OSError:
            pass
        return rest if rest or not self._rest else b"\n"  # nothing will complete the half line that we hold


async def follow(
    path: Path, *, since_end: bool = False, interval: timedelta = timedelta(milliseconds=100)
) -> AsyncIterator[Event]:
    """Events as they come, for ever; cancel to end. The log need not exist yet."""
    tail = Tail(path, since_end=since_end)
    while True:
        for event in tail.new():
            yield event
        await asyncio.sleep(interval.total_seconds())


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _line(event: Event) -> bytes:
    content = {**event.fields, "schema": SCHEMA, "t": round(event.t, 6), "kind": event.kind}
    line = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
        errors="replace"
    )
    if len(line) >= MAX_LINE:
        raise ValueError(f"event {event.kind} of {len(line)} bytes is longer than {MAX_LINE}")
    return line + b"\n"


def _parse(line: bytes) -> Event | None:
    try:
        content = json.loads(line)
        schema, t, kind = content.pop("schema"), float(content.pop("t")), str(content.pop("kind"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # cut off by a crash or a full disk
    if schema != SCHEMA:
        raise NodeError(
            Code.STO_SCHEMA,
            f"The event log was written in version {schema}; this software reads version {SCHEMA}.",
        )
    return Event(t, kind, content)


def _plain(value: Any) -> Any:
    """`value` in the types that JSON has."""
    match value:
        case None | bool():
            return value
        case Enum():
            return _plain(value.value)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case str():
            return str(value)
        case bytes() | bytearray():
            return value.hex()
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _ if hasattr(value, "item"):  # a numpy or torch scalar
            try:
                return _plain(value.item())
            except (ValueError, TypeError, RuntimeError, RecursionError):
                return str(value)
        case _:
            return str(value)
