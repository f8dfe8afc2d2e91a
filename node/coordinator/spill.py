"""The spill file: facts that a database could not take, on disk until it can."""

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from node.coordinator.facts import Fact
from node.coordinator.facts_json import from_json, kind_of, to_json

FILE = "spilled.jsonl"
_BATCH = 2000


@dataclass(frozen=True)
class Batch:
    """Facts of a spill file in order.

    Attributes:
        facts: The facts.
        place: Name of the file, and where it goes on after them: what is stored beside them, so that after a crash
            none of them is written twice.
    """

    facts: tuple[Fact, ...]
    place: str


class Spill:
    """A file of facts, for one thread.

    Args:
        path: Where it is, or will be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __bool__(self) -> bool:
        return self._path.exists()

    def add(self, facts: Sequence[Fact]) -> None:
        """Append facts; durable when this returns.

        Raises:
            OSError: They could not be written.
        """
        data = "".join(json.dumps([kind_of(fact), to_json(fact)]) + "\n" for fact in facts).encode()
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end = os.fstat(descriptor).st_size
            try:
                if end and os.pread(descriptor, 1, end - 1) != b"\n":
                    data = b"\n" + data
                if os.pwrite(descriptor, data, end) != len(data):
                    raise OSError("the spill file could not be written whole")
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, end)
                raise
        finally:
            os.close(descriptor)

    def after(self, place: str) -> Batch | None:
        """The next facts after a place; None where there is none. A line that a crash cut off is left out."""
        try:
            with self._path.open("rb") as file:
                name = str(os.fstat(file.fileno()).st_ino)
                at = place.partition(":")
                file.seek(int(at[2]) if at[0] == name and at[2].isdigit() else 0)
                facts = []
                end = file.tell()
                while (line := file.readline()).endswith(b"\n"):
                    end += len(line)
                    with contextlib.suppress(ValueError, TypeError):
                        kind, text = json.loads(line)
                        facts.append(from_json(kind, text))
                    if len(facts) == _BATCH:
                        break
        except FileNotFoundError:
            return None
        return Batch(tuple(facts), f"{name}:{end}") if facts else None

    def remove(self) -> None:
        """Its facts are in the database."""
        self._path.unlink(missing_ok=True)
