"""What an orchestrator keeps on disk, row by row. Nothing else of its state outlives it, and no row holds a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from rl.work.standing import Standing

RECENT = 16
"""Leases of a worker by which its rate of abandoned ones is taken."""

EVIDENCE = 8
"""Digests of files that are kept as evidence against one worker."""


@dataclass(frozen=True)
class Work:
    """A lease of work that is neither answered nor abandoned.

    Attributes:
        worker: Who has it.
        counter: Its number among the leases that this trainer gave this worker, from 0.
        version: The policy version it was given for.
        positions: Whole groups that are to be made.
        late: Its time is over; it may still be answered until somebody else has one of its positions.
    """

    worker: str
    counter: int
    version: int
    positions: tuple[int, ...]
    late: bool = False

    @property
    def key(self) -> str:
        """Names the row."""
        return f"{self.worker}/{self.counter}"


@dataclass(frozen=True)
class GroupFacts:
    """What is known of one group without its tokens.

    Attributes:
        position: The position.
        oldest: Oldest policy version of its sampled tokens.
        newest: Newest one.
        rewards: Of each rollout, finite.
        tokens: Sampled tokens.
    """

    position: int
    oldest: int
    newest: int
    rewards: tuple[float, ...]
    tokens: int


@dataclass(frozen=True)
class Opinion:
    """One validator's verdict on one file.

    Attributes:
        validator: Who says so.
        accepted: Whether it found nothing wrong.
        code: Stable code of what is wrong.
        sentence: The same in words.
        strikes: What it costs the worker; 0 for what an honest one can run into.
        undecided: It could not judge the file; another one is asked.
        doubt: Something is unusual and proves nothing: the worker's next files are audited in full.
    """

    validator: str
    accepted: bool
    code: str = ""
    sentence: str = ""
    strikes: int = 0
    undecided: bool = False
    doubt: bool = False


FileState = Literal["waiting", "accepted", "refused", "appealed"]


@dataclass(frozen=True)
class File:
    """A rollout file on this trainer's disk.

    Attributes:
        digest: BLAKE3 of its bytes (32 bytes).
        worker: Who made it.
        counter: The lease of work that it answers.
        version: The policy version of that lease.
        nbytes: Its size.
        groups: What is in it.
        number: The number under which this trainer acknowledged it.
        link: The link of the audit chain of that number (32 bytes), by which it is judged.
        standing: How far its worker was believed when it came, which decides how much of it is re-derived.
        wanted: Opinions that decide.
        opinions: Those that have come.
        state: Where it stands.
        code: Why it was refused.
        struck: Strikes that it cost its worker.
        heard: An appeal has been made; there is no second one.
        planted: It is known to be bad, and its validator is being tested.
        apart: Validators that are not asked: they know the file that this one was made from.
        trainer: Whose lease it answers; empty for one of this trainer's.
    """

    digest: bytes
    worker: str
    counter: int
    version: int
    nbytes: int
    groups: tuple[GroupFacts, ...]
    number: int = 0
    link: bytes = b""
    standing: Standing = Standing.NEW
    wanted: int = 1
    opinions: tuple[Opinion, ...] = ()
    state: FileState = "waiting"
    code: str = ""
    struck: int = 0
    heard: bool = False
    planted: bool = False
    apart: tuple[str, ...] = ()
    trainer: str = ""

    @property
    def key(self) -> str:
        """Names the row."""
        return self.digest.hex()


@dataclass(frozen=True)
class Place:
    """What is remembered of a position beside work and files.

    Attributes:
        position: The position.
        tries: Attempts at it that failed.
        failed: Who failed last, at most four; others are asked first.
        given_up: Too many attempts failed: it counts as consumed with nothing trained.
        floor: Work given for policy versions below this no longer counts.
    """

    position: int
    tries: int = 0
    failed: tuple[str, ...] = ()
    given_up: bool = False
    floor: int = 0

    @property
    def key(self) -> str:
        """Names the row."""
        return str(self.position)


@dataclass(frozen=True)
class Worker:
    """What a worker has done so far.

    Attributes:
        peer: The worker.
        counter: The number of its next lease.
        accepted: Positions of it that were accepted.
        refused: Files that were refused.
        clean: Accepted files since the last strike, or since one was forgiven.
        strikes: Strikes that count.
        doubted: Accepted files until a doubt about it is over.
        recent: The ends of its last leases: ``a`` answered, ``x`` abandoned, ``l`` late.
        banned: Why it is banned; empty where it is not.
        evidence: Digests of the files it is banned for.
    """

    peer: str
    counter: int = 0
    accepted: int = 0
    refused: int = 0
    clean: int = 0
    strikes: int = 0
    doubted: int = 0
    recent: str = ""
    banned: str = ""
    evidence: tuple[bytes, ...] = ()

    @property
    def key(self) -> str:
        """Names the row."""
        return self.peer


@dataclass(frozen=True)
class Judge:
    """What is remembered of a validator.

    Attributes:
        validator: The validator.
        judged: Files it was right about, as far as anyone knows.
        overruled: Times that two others saw it otherwise.
        failed: Files known to be bad that it accepted; it is not asked again.
    """

    validator: str
    judged: int = 0
    overruled: int = 0
    failed: int = 0

    @property
    def key(self) -> str:
        """Names the row."""
        return self.validator


@dataclass(frozen=True)
class Tally:
    """How many files have been acknowledged; a number is never given twice."""

    acknowledged: int = 0
    key: str = "tally"


Row = Work | File | Place | Worker | Judge | Tally


@dataclass(frozen=True)
class Kept:
    """All rows, by kind and key."""

    works: Mapping[str, Work] = field(default_factory=dict)
    files: Mapping[str, File] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    workers: Mapping[str, Worker] = field(default_factory=dict)
    judges: Mapping[str, Judge] = field(default_factory=dict)
    tallies: Mapping[str, Tally] = field(default_factory=dict)

    def with_row(self, row: Row) -> "Kept":
        """With a row added or replaced."""
        kind = TABLES[type(row)]
        rows = {**getattr(self, kind), row.key: row}
        return self._with(kind, rows)

    def without(self, kind: str, key: str) -> "Kept":
        """Without a row, if it is there."""
        rows = dict(getattr(self, kind))
        return self._with(kind, rows) if rows.pop(key, None) is not None else self

    def _with(self, kind: str, rows: dict[str, Any]) -> "Kept":
        return Kept(**{**{each.name: getattr(self, each.name) for each in fields(self)}, kind: rows})

    @classmethod
    def of(cls, rows: "Iterator[Row] | tuple[Row, ...]") -> "Kept":
        """From rows in any order."""
        kinds: dict[str, dict[str, Any]] = {name: {} for name in TABLES.values()}
        for row in rows:
            kinds[TABLES[type(row)]][row.key] = row
        return cls(**kinds)

    def changes(self, before: "Kept") -> "tuple[tuple[Row, ...], tuple[tuple[str, str], ...]]":
        """Rows that are new or other than before, and the kinds and keys of those that are gone."""
        put: list[Row] = []
        gone: list[tuple[str, str]] = []
        for name in TABLES.values():
            new, old = getattr(self, name), getattr(before, name)
            if new is not old:
                put += [row for key, row in new.items() if old.get(key) is not row and old.get(key) != row]
                gone += [(name, key) for key in old if key not in new]
        return tuple(put), tuple(gone)


TABLES: Mapping[type, str] = {
    Work: "works", File: "files", Place: "places", Worker: "workers", Judge: "judges",
    Tally: "tallies",
}  # fmt: skip
"""The kind of each row."""
