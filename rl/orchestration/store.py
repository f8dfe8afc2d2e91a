"""The orchestrator's rows in one SQLite file: what one event changes is written together, or not at all.

A write is durable when the call returns (write-ahead log with ``synchronous=FULL``).
"""

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgpack

from protocol.errors import Code, NodeError
from rl.orchestration.rows import (
    TABLES,
    File,
    GroupFacts,
    Judge,
    Kept,
    Opinion,
    Place,
    Row,
    Tally,
    Work,
    Worker,
)
from rl.work.standing import Standing

SCHEMA_VERSION = 1

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rows (kind TEXT NOT NULL, key TEXT NOT NULL, row BLOB NOT NULL, PRIMARY KEY (kind, key));
"""


class Store:
    """Rows on disk. For one thread.

    Args:
        path: The SQLite file; made when missing.
        run: The run that it belongs to.

    Raises:
        NodeError: ``STO_UNWRITABLE``, ``STO_CORRUPT`` or ``STO_SCHEMA``.
    """

    def __init__(self, path: Path, run: str) -> None:
        self._path = path
        meta = {"schema": str(SCHEMA_VERSION), "run": run}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_TABLES)
            self._db.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", list(meta.items()))
            found = dict(self._db.execute("SELECT key, value FROM meta").fetchall())
        except (sqlite3.DatabaseError, OSError) as error:
            unusable = isinstance(error, sqlite3.OperationalError | OSError)
            code = Code.STO_UNWRITABLE if unusable else Code.STO_CORRUPT
            raise NodeError(code, f"The orchestrator's file {path} cannot be opened: {error}.") from error
        for key, wanted in meta.items():
            if found[key] != wanted:
                self._db.close()
                raise NodeError(
                    Code.STO_SCHEMA, f"{path} is of {key} {found[key]}; this node needs {key} {wanted}."
                )

    def load(self) -> Kept:
        """All rows.

        Raises:
            NodeError: ``STO_CORRUPT`` when one cannot be read.
        """
        try:
            found = self._db.execute("SELECT kind, row FROM rows ORDER BY rowid").fetchall()
            return Kept.of(tuple(_READERS[kind](msgpack.unpackb(row, use_list=False)) for kind, row in found))
        except (sqlite3.DatabaseError, ValueError, TypeError, KeyError) as error:
            raise NodeError(Code.STO_CORRUPT, f"The orchestrator's file {self._path} is damaged.") from error

    def save(self, put: tuple[Row, ...], gone: tuple[tuple[str, str], ...]) -> None:
        """Write and remove rows in one transaction.

        Raises:
            NodeError: ``STO_FULL`` when it cannot be written; then nothing was.
        """
        written = [(TABLES[type(row)], row.key, msgpack.packb(asdict(row))) for row in put]
        try:
            with closing(self._db.cursor()) as cursor:
                cursor.execute("BEGIN")
                try:
                    cursor.executemany("DELETE FROM rows WHERE kind = ? AND key = ?", gone)
                    cursor.executemany(
                        "INSERT INTO rows VALUES (?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET row = excluded.row",
                        written,
                    )
                    cursor.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        cursor.execute("ROLLBACK")
                    raise
        except sqlite3.DatabaseError as error:
            raise NodeError(
                Code.STO_FULL, f"The orchestrator's file {self._path} cannot be written: {error}."
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _file(row: dict[str, Any]) -> File:
    groups = tuple(GroupFacts(**each) for each in row.pop("groups"))
    opinions = tuple(Opinion(**each) for each in row.pop("opinions"))
    return File(**row | {"groups": groups, "opinions": opinions, "standing": Standing(row["standing"])})


_READERS: Mapping[str, Callable[[dict[str, Any]], Row]] = {
    "works": lambda row: Work(**row),
    "files": _file,
    "places": lambda row: Place(**row),
    "workers": lambda row: Worker(**row),
    "judges": lambda row: Judge(**row),
    "tallies": lambda row: Tally(**row),
}
