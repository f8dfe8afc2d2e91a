"""What happened on an in-memory network, kept as lines of JSON, and made to happen again."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from protocol.testing.conditions import Fate, Kind

SCHEMA = 1
_DIGEST_DIGITS = 16


class Diverged(AssertionError):
    """A replay sent something else than the recording says."""


@dataclass(frozen=True)
class Entry:
    """One piece that was sent.

    Attributes:
        at: Virtual seconds.
        source: Name of the sending node.
        target: Name of the node that it was sent to.
        kind: What it is.
        name: The message's name.
        size: Its bytes.
        digest: Short BLAKE3 of its bytes, hexadecimal.
        fate: What became of it.
    """

    at: float
    source: str
    target: str
    kind: Kind
    name: str
    size: int
    digest: str
    fate: Fate

    def to_json(self) -> dict[str, Any]:
        """The entry as a recording holds it; of the fate only what is out of the ordinary."""
        line: dict[str, Any] = {
            "at": round(self.at, 9), "from": self.source, "to": self.target, "kind": str(self.kind),
            "name": self.name, "size": self.size, "digest": self.digest, "delays": list(self.fate.delays),
        }  # fmt: skip
        if self.fate.bit is not None:
            line["bit"] = self.fate.bit
        for flag in ("blocked", "overtakable"):
            if getattr(self.fate, flag):
                line[flag] = True
        return line

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> "Entry":
        """The entry that :meth:`to_json` wrote."""
        fate = Fate(
            tuple(float(delay) for delay in line["delays"]),
            line.get("bit"),
            bool(line.get("blocked", False)),
            bool(line.get("overtakable", False)),
        )
        return cls(
            float(line["at"]), line["from"], line["to"], Kind(line["kind"]), line["name"],
            int(line["size"]), line["digest"], fate,
        )  # fmt: skip


@dataclass(frozen=True)
class Recording:
    """Everything that was sent in one scene.

    Attributes:
        seed: The swarm's seed.
        entries: What was sent, in order.
    """

    seed: int
    entries: tuple[Entry, ...]

    def save(self, path: Path) -> None:
        """Writes it: a line about the recording, and a line for each entry."""
        head = {"schema": SCHEMA, "seed": self.seed, "entries": len(self.entries)}
        lines = [head, *(entry.to_json() for entry in self.entries)]
        path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))

    @classmethod
    def load(cls, path: Path) -> "Recording":
        """Reads it.

        Raises:
            ValueError: The file is no recording, or one of another schema.
        """
        lines = path.read_text().splitlines()
        try:
            head = json.loads(lines[0]) if lines else {}
            if head.get("schema") != SCHEMA:
                raise ValueError(f"schema {head.get('schema')} instead of {SCHEMA}")
            return cls(int(head["seed"]), tuple(Entry.from_json(json.loads(line)) for line in lines[1:]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not a recording of a swarm: {error}") from error


class Recorder:
    """Takes note of what is sent."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def note(
        self, at: float, source: str, target: str, kind: Kind, name: str, raw: bytes, fate: Fate
    ) -> None:
        """Adds an entry."""
        self.entries.append(Entry(at, source, target, kind, name, len(raw), _digest(raw), fate))


class Replayer:
    """Gives each piece the fate that the recording says, as long as the same pieces are sent in the same order."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: Iterator[Entry] = iter(entries)
        self.replayed = 0

    def next(self, source: str, target: str, kind: Kind, name: str, raw: bytes) -> Fate:
        """The fate of the next piece.

        Raises:
            Diverged: The recording has another piece here, or none.
        """
        entry = next(self._entries, None)
        sent = (source, target, str(kind), name, len(raw), _digest(raw))
        if entry is None:
            raise Diverged(f"The recording ends after {self.replayed} entries; here came {_words(sent)}.")
        said = (entry.source, entry.target, str(entry.kind), entry.name, entry.size, entry.digest)
        if said != sent:
            raise Diverged(f"Entry {self.replayed} is {_words(said)}; here came {_words(sent)}.")
        self.replayed += 1
        return entry.fate


def _digest(raw: bytes) -> str:
    return blake3(raw).hexdigest()[:_DIGEST_DIGITS]


def _words(piece: tuple[str, str, str, str, int, str]) -> str:
    source, target, kind, name, size, digest = piece
    return f"{kind} {name} from {source} to {target}, {size} bytes {digest}"
