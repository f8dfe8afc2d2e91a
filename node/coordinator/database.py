"""A coordinator's database: SQLite or PostgreSQL, by URL; its engine, its schema, one statement at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine

from node.coordinator import tables
from protocol.errors import Code, NodeError

_WAIT = 2.0  # seconds that one statement may wait for a lock


class StoreError(Exception):
    """The database is locked, full or gone; the message says which, for people."""


def database_url(text: str, folder: Path) -> str:
    """The SQLAlchemy URL of a database.

    Args:
        text: ``sqlite:///PATH``, ``postgresql://…``, or empty for a SQLite file in the folder.
        folder: The coordinator's data directory.

    Raises:
        NodeError: ``CFG_USAGE``: another database, or no URL.
    """
    if not text:
        return f"sqlite:///{(folder / 'coordinator.sqlite').absolute()}"
    fix = "Write sqlite:///PATH or postgresql://USER@HOST/NAME."
    try:
        url = sql.make_url(text)
    except sql.exc.ArgumentError:
        raise NodeError(Code.CFG_USAGE, "The database's URL cannot be read.", fix=fix) from None
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    if url.drivername == "sqlite" and url.database:
        return str(url)
    raise NodeError(Code.CFG_USAGE, f"{url.drivername} is not supported.", fix=fix)


class Database:
    """One coordinator's database. Any thread may call it.

    Args:
        url: As ``database_url`` gives it.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = _engine(url)
        self._ready = False

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def prepare(self) -> None:
        """Make the tables where they are missing.

        Raises:
            StoreError: The database cannot be used now.
            NodeError: ``STO_SCHEMA``: it is of another version.
        """
        with self._transaction() as connection:
            tables.metadata.create_all(connection)
            found = connection.execute(
                sql.select(tables.meta.c.value).where(tables.meta.c.key == "schema")
            ).scalar()
            if found is None:
                connection.execute(tables.meta.insert().values(key="schema", value=tables.SCHEMA))
            elif found != tables.SCHEMA:
                sentence = (
                    f"The coordinator's database has schema {found}; this software uses {tables.SCHEMA}."
                )
                raise NodeError(Code.STO_SCHEMA, sentence)
        self._ready = True

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with _said(), self._engine.begin() as connection:
            yield connection

    def _rows(self, statement: sql.Select[Any]) -> list[Any]:
        if not self._ready:
            self.prepare()
        with _said(), self._engine.connect() as connection:
            return list(connection.execute(statement).fetchall())

    def _scalar(self, statement: sql.Select[Any]) -> Any:
        rows = self._rows(statement)
        return rows[0][0] if rows else None


@contextmanager
def _said() -> Iterator[None]:
    """Says what a database has against a statement, without the statement."""
    try:
        yield
    except (sql.exc.DBAPIError, OSError) as error:
        said = str(getattr(error, "orig", error)).splitlines()
        raise StoreError(
            f"The database cannot be used: {said[0] if said else type(error).__name__}"
        ) from error


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        options = {
            "connect_timeout": 3,
            "options": f"-c lock_timeout={int(_WAIT * 1000)} -c statement_timeout=30000",
        }
        return sql.create_engine(url, pool_pre_ping=True, pool_size=4, connect_args=options)
    engine = sql.create_engine(url, connect_args={"timeout": _WAIT, "check_same_thread": False})

    @sql.event.listens_for(engine, "connect")
    def begin(connection: Any, _: Any) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    return engine


def upsert(connection: Connection, table: sql.Table, keys: list[str], rows: list[dict[str, Any]]) -> Any:
    """The statement that inserts rows, or changes those whose keys are there."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table).values(rows)
    others = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=others)
