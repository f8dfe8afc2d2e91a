"""The ledger: certified values, hash-linked, and this member's own promise and vote, in one SQLite file.

Every write is durable when the call returns (write-ahead log with ``synchronous=FULL``), as promises and votes must be
before they are said.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from diloco.rounds.certificate import Certified
from diloco.rounds.events import Persist
from diloco.rounds.statements import Evidence
from diloco.rounds.values import Decided, Value, parse_value, value_digest
from protocol.errors import Code, NodeError
from protocol.messages import decode, encode

SCHEMA_VERSION = 1

_PAGE = 100  # values that are read at once

DAMAGED = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file raises; Python fails to read what SQLite says of some."""

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS decided (
    epoch INTEGER NOT NULL, round INTEGER NOT NULL, digest BLOB NOT NULL, decided BLOB NOT NULL,
    reset INTEGER NOT NULL,
    PRIMARY KEY (epoch, round));
CREATE TABLE IF NOT EXISTS promise (
    one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, round INTEGER NOT NULL, promised INTEGER NOT NULL,
    voted_attempt INTEGER NOT NULL, voted_value BLOB NOT NULL, voted_close BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS evidence (accused TEXT PRIMARY KEY, kind TEXT NOT NULL, evidence BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS life (one INTEGER PRIMARY KEY, started INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rival (
    one INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, digest BLOB NOT NULL, decided BLOB NOT NULL);
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open a ledger for reading only; a node may be writing it. Leaves nothing beside a file that no node has open.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    written = path.with_name(path.name + "-wal").exists()
    how = (
        "mode=ro" if written else "mode=ro&immutable=1"
    )  # without its log nobody writes it, and no lock is needed
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", uri=True, isolation_level=None)


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.executescript(_TABLES)
    return database


class Ledger:
    """Certified values in order, and the last promise. Any thread may use it, and close it under another.

    Args:
        path: The SQLite file; made when missing.
        read_only: Change nothing; a node may be writing it.

    Raises:
        NodeError: ``STO_UNWRITABLE``, ``STO_CORRUPT`` or ``STO_SCHEMA``.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._alone = (
            threading.RLock()
        )  # SQLite ends the process when a connection is closed in the middle of a call
        try:
            self._db = connect(path) if read_only else _open(path)
            row = self._row("SELECT value FROM meta WHERE key = 'schema'")
            if row is None:
                self._db.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))
            elif row[0] != str(SCHEMA_VERSION):
                raise NodeError(
                    Code.STO_SCHEMA, f"{path} has schema version {row[0]}; this node writes {SCHEMA_VERSION}."
                )
        except DAMAGED as error:
            code = Code.STO_UNWRITABLE if isinstance(error, sqlite3.OperationalError) else Code.STO_CORRUPT
            raise NodeError(code, f"The ledger {path} cannot be opened: {error}.") from error

    def append(self, certified: Certified, *, over: bool = False) -> None:
        """Store a certified value; storing the same one again is harmless.

        Args:
            certified: The value.
            over: Forget whatever else follows the link that it follows: the other side of a fork, which does not stand.

        Raises:
            NodeError: ``RND_CHAIN`` when another value of that round is stored; ``STO_FULL`` when it cannot be written.
        """
        value = certified.value
        if over:
            before = "(SELECT epoch, round FROM decided WHERE digest = ?)"
            follows = (certified.named or certified).value.previous
            self._write(f"DELETE FROM decided WHERE (epoch, round) > {before}", (follows,))
        known = self._row(
            "SELECT digest FROM decided WHERE epoch = ? AND round = ?", (value.epoch, value.round)
        )
        if known is not None:
            if known[0] != certified.digest:
                raise NodeError(
                    Code.RND_CHAIN, f"The ledger already holds another value of round {value.round}."
                )
            return
        data = encode(to_message(certified))
        reset = bool(certified.start) and value.epoch > 0
        with self._together():
            if certified.named is not None:  # in place of what else may be certified for that round here
                other = (value.epoch, value.round, certified.named.digest)
                self._write(
                    "DELETE FROM decided WHERE epoch < ? AND round = ? AND digest != ? AND NOT reset", other
                )
                self.append(certified.named)
            if reset:  # certificates of an older epoch from there on are void
                self._write("DELETE FROM decided WHERE epoch < ? AND round > ?", (value.epoch, value.round))
            fields = (value.epoch, value.round, certified.digest, data, reset)
            self._write("INSERT INTO decided VALUES (?, ?, ?, ?, ?)", fields)

    def cut(self, tip: Certified | None) -> None:
        """Forget every value after one; all of them after None."""
        if tip is None:
            self._write("DELETE FROM decided", ())
            return
        place = (tip.value.epoch, tip.value.epoch, tip.value.round)
        self._write("DELETE FROM decided WHERE epoch > ? OR (epoch = ? AND round > ?)", place)

    def tip(self) -> Certified | None:
        """The newest certified value."""
        row = self._row("SELECT decided FROM decided ORDER BY epoch DESC, round DESC LIMIT 1")
        return None if row is None else self._read(row[0])

    def get(self, round_number: int) -> Certified | None:
        """What was decided in a round, of the highest epoch that has it; a reset decides nothing of its round."""
        row = self._row(
            "SELECT decided FROM decided WHERE round = ? AND NOT reset ORDER BY epoch DESC LIMIT 1",
            (_stored(round_number),),
        )
        return None if row is None else self._read(row[0])

    def has(self, certified: Certified) -> bool:
        """Whether a certified value is stored."""
        return self._row("SELECT 1 FROM decided WHERE digest = ?", (certified.digest,)) is not None

    def links(self, round_number: int) -> list[Certified]:
        """What names a round, the newest epoch first: the value that was decided in it, and resets after it."""
        rows = self._rows(
            "SELECT decided FROM decided WHERE round = ? ORDER BY epoch DESC", (_stored(round_number),)
        )
        return [self._read(row[0]) for row in rows]

    def after(self, epoch: int, round_number: int, limit: int = 1000) -> Iterator[Certified]:
        """Certified values after one, in the chain's order (epoch, then round), at most ``limit``.

        A value that only a reset makes stand is left out: the reset shows it.
        """
        rows = self._rows(
            "SELECT decided FROM decided WHERE epoch > ? OR (epoch = ? AND round > ?) ORDER BY epoch, round LIMIT ?",
            (_stored(epoch), _stored(epoch), _stored(round_number), limit),
        )
        return (link for row in rows if (link := self._read(row[0])).votes or link.start)

    def since(self, epoch: int, round_number: int) -> Iterator[Value]:
        """The values from a place on, one at a time, in the chain's order."""
        round_number -= 1
        while page := list(self.after(epoch, round_number, _PAGE)):
            yield from (certified.value for certified in page)
            epoch, round_number = page[-1].value.epoch, page[-1].value.round

    def origin(self) -> Certified | None:
        """The record that began the newest epoch."""
        return next(self.origins(), None)

    def origins(self) -> Iterator[Certified]:
        """The records that began the epochs of the chain, the newest first."""
        rows = self._rows("SELECT decided FROM decided WHERE reset OR round < 0 ORDER BY epoch DESC")
        return (self._read(row[0]) for row in rows)

    def keep_rival(self, certified: Certified) -> None:
        """Store the other side of a fork, so that this member does not go on after a restart.

        Raises:
            NodeError: ``STO_FULL`` when it cannot be written.
        """
        fields = (certified.value.epoch, certified.digest, encode(to_message(certified)))
        self._write("INSERT OR REPLACE INTO rival VALUES (1, ?, ?, ?)", fields)

    def rival(self) -> Certified | None:
        """The other side of a fork in the newest epoch."""
        row = self._row("SELECT decided FROM rival WHERE epoch >= (SELECT MAX(epoch) FROM decided)")
        return None if row is None else self._read(row[0])

    def start(self, now: int) -> int:
        """Note a start of the node that owns this file; Unix milliseconds, more than at any earlier start.

        On a full disk nothing is noted.

        Args:
            now: Unix milliseconds by this node's clock.
        """
        row = self._row("SELECT started FROM life")
        started = max(now, row[0] + 1 if row is not None else 0)
        with suppress(NodeError):
            self._write("INSERT OR REPLACE INTO life VALUES (1, ?)", (started,))
        return started

    def has_started(self) -> bool:
        """Whether a member has begun with what is here, and so has believed it."""
        return self._row("SELECT 1 FROM life") is not None

    def save_promise(self, promise: Persist) -> None:
        """Store promise and vote; durable when this returns.

        Raises:
            NodeError: ``STO_FULL`` when it cannot be written: the member then abstains.
        """
        fields = (
            promise.epoch, promise.round, promise.promised,
            promise.voted_attempt, promise.voted_value, promise.voted_close,
        )  # fmt: skip
        self._write("INSERT OR REPLACE INTO promise VALUES (1, ?, ?, ?, ?, ?, ?)", fields)

    def promise(self) -> Persist | None:
        """The last promise, of whatever round."""
        row = self._row("SELECT epoch, round, promised, voted_attempt, voted_value, voted_close FROM promise")
        return None if row is None else Persist(*row)

    def keep_evidence(self, evidence: Evidence) -> None:
        """Store verified evidence, the first against each accused.

        Raises:
            NodeError: ``STO_FULL`` when it cannot be written.
        """
        fields = (evidence.accused, evidence.kind, encode(evidence))
        self._write("INSERT OR IGNORE INTO evidence VALUES (?, ?, ?)", fields)

    def evidence(self) -> list[bytes]:
        """Evidence that was stored, encoded; who uses it verifies it again."""
        return [row[0] for row in self._rows("SELECT evidence FROM evidence ORDER BY accused")]

    def close(self) -> None:
        """Close the file; what another thread is asking for is answered first."""
        with self._alone:
            self._db.close()

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Writes of which all are durable afterwards, or none."""
        with self._alone:
            outermost = not self._db.in_transaction
            if outermost:
                self._write("BEGIN IMMEDIATE", ())
            try:
                yield
                if outermost:
                    self._write("COMMIT", ())
            except BaseException:
                if outermost and self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, statement: str, fields: tuple[object, ...] = ()) -> list[Any]:
        with self._alone:
            return self._db.execute(statement, fields).fetchall()

    def _row(self, statement: str, fields: tuple[object, ...] = ()) -> Any:
        return next(iter(self._rows(statement, fields)), None)

    def _write(self, statement: str, fields: tuple[object, ...]) -> None:
        try:
            with self._alone:
                self._db.execute(statement, fields)
        except sqlite3.OperationalError as error:
            raise NodeError(Code.STO_FULL, f"The ledger {self._path} cannot be written: {error}.") from error

    def _read(self, data: bytes) -> Certified:
        return from_message(decode(Decided, data))


def _stored(number: int) -> int:
    """A number that a peer asks for, within what SQLite can hold; no stored one is near the bounds."""
    return max(-(2**63), min(number, 2**63 - 1))


def to_message(certified: Certified) -> Decided:
    """A certified value as it travels and is stored."""
    return Decided(
        value=certified.data, attempt=certified.attempt, votes=certified.votes, start=certified.start
    )


def from_message(decided: Decided) -> Certified:
    """The reverse; signatures are not checked here.

    Raises:
        ValueError: The value is not canonical.
        NodeError: It is not a value.
    """
    return Certified(
        value=parse_value(decided.value),
        data=decided.value,
        digest=value_digest(decided.value),
        attempt=decided.attempt,
        votes=decided.votes,
        start=decided.start,
    )
