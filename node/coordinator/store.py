"""The store: facts in a database, with what is made from them, for writing in batches and reading in pages.

SQLite or PostgreSQL, by URL. Every call may raise ``StoreError``, when the database is locked, full or gone; who
writes keeps what could not be written (``node.coordinator.recorder``).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from blake3 import blake3
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine

from node.coordinator import tables
from node.coordinator.facts import (
    Acted,
    Admitted,
    Decided,
    Fact,
    Reported,
    from_json,
    kind_of,
    subject_of,
    to_json,
)
from node.coordinator.view import Round, View, plain, restored, snapshot
from protocol.errors import Code, NodeError

SNAPSHOT_EVERY = 20_000
"""Facts between two stored views, from which a start and a replay go on."""

_WAIT = 2.0  # seconds that one statement may wait for a lock
_PAGE = 1000


class StoreError(Exception):
    """The database is locked, full or gone; the message says which, for people."""


@dataclass(frozen=True)
class Stored:
    """A fact and its number."""

    sequence: int
    fact: Fact


@dataclass(frozen=True)
class Credit:
    """One line of the credit ledger.

    Attributes:
        claimed: Tokens that the peer reported for the round.
        verified: Tokens that the round certified as averaged.
        total: All verified tokens of the peer up to this line.
        rounds: All its rounds up to this line.
    """

    epoch: int
    round: int
    peer: str
    at: float
    claimed: int
    verified: int
    total: int
    rounds: int


@dataclass(frozen=True)
class Point:
    """A decided round as one point of a chart; None where nobody said the number.

    Attributes:
        seconds: How long it took.
        contributors: How many its roster lists.
        sent: Bytes that members sent for it, as far as they said.
        loss: Mean training loss, nats per token.
        validation: Mean loss on the validation set.
        speed: Tokens per second of all members' training together.
    """

    round: int
    epoch: int
    decided_at: float
    seconds: float
    tokens: int
    contributors: int
    sent: int
    loss: float | None
    validation: float | None
    speed: float | None


def point(entry: Round) -> Point:
    """The point of a decided round."""
    validation = list(entry.validation.values())
    return Point(
        round=entry.round,
        epoch=entry.epoch,
        decided_at=entry.decided_at,
        seconds=entry.decided_at - entry.began_at if entry.began_at else 0.0,
        tokens=entry.tokens,
        contributors=len(entry.roster),
        sent=sum(entry.sent.values()),
        loss=sum(entry.losses.values()) / len(entry.losses) if entry.losses else None,
        validation=sum(validation) / len(validation) if validation else None,
        speed=sum(entry.speeds.values()) if entry.speeds else None,
    )


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


class Store:
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

    # ---- writing

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

    def append(self, facts: Sequence[Fact], rounds: Sequence[Round] = (), spilled: str = "") -> int:
        """Write facts and all that is made from them, in one transaction.

        Args:
            facts: In the order in which they were learned.
            rounds: Decided rounds as the view shows them now, to be read in pages later.
            spilled: The place in a spill file that they end at, where they come from one.

        Returns:
            The last fact's number.

        Raises:
            StoreError: Nothing of it was written.
        """
        if not self._ready:
            self.prepare()
        with self._transaction() as connection:
            last = connection.execute(sql.select(sql.func.max(tables.facts.c.sequence))).scalar() or 0
            rows = [_row(last + place, fact) for place, fact in enumerate(facts, 1)]
            if rows:
                connection.execute(tables.facts.insert(), rows)
            for fact in facts:
                match fact:
                    case Decided():
                        _credit(connection, fact)
                    case Acted():
                        _chain(connection, fact)
                    case Admitted():
                        _admit(connection, fact)
            if rounds:
                _keep_rounds(connection, rounds)
            if spilled:
                place = [{"key": "spilled", "value": spilled}]
                connection.execute(_upsert(connection, tables.meta, ["key"], place))
            return int(last + len(rows))

    def keep_view(self, view: View, at: float) -> None:
        """Store a view, from which a later start goes on.

        Raises:
            StoreError: It was not written.
        """
        body = json.dumps(snapshot(view), separators=(",", ":"))
        with self._transaction() as connection:
            row = {"sequence": view.sequence, "at": at, "body": body}
            connection.execute(_upsert(connection, tables.snapshots, ["sequence"], [row]))

    # ---- reading

    def spilled(self) -> str:
        """Up to which place a spill file's facts are here; empty for none."""
        found = sql.select(tables.meta.c.value).where(tables.meta.c.key == "spilled")
        return str(self._scalar(found) or "")

    def last(self) -> int:
        """The newest fact's number; 0 where there is none."""
        return int(self._scalar(sql.select(sql.func.max(tables.facts.c.sequence))) or 0)

    def view(self, until: float | None = None) -> View:
        """The view at a time, Unix seconds, or now: the last stored one before it, and the facts since."""
        from node.coordinator.fold import fold

        where = [] if until is None else [tables.snapshots.c.at <= until]
        statement = sql.select(tables.snapshots.c.body).where(*where)
        body = self._scalar(statement.order_by(tables.snapshots.c.sequence.desc()).limit(1))
        view = restored(json.loads(body)) if body else View()
        for stored in self.facts(after=view.sequence, until=until):
            view, _ = fold(view, stored.fact, stored.sequence)
        return view

    def facts(
        self,
        after: int = 0,
        *,
        before: int | None = None,
        until: float | None = None,
        peer: str = "",
        kinds: tuple[str, ...] = (),
        limit: int | None = None,
    ) -> Iterator[Stored]:
        """Facts in order.

        Args:
            after: Those with a higher number.
            before: Those with a lower number.
            until: Those seen no later, Unix seconds.
            peer: Those about this peer.
            kinds: Of these kinds: a fact's, or an event's for reported ones.
            limit: At most so many.
        """
        table, left = tables.facts, limit
        while left is None or left > 0:
            conditions = [table.c.sequence > after]
            if before is not None:
                conditions.append(table.c.sequence < before)
            if until is not None:
                conditions.append(table.c.seen_at <= until)
            if peer:
                conditions.append(table.c.peer == peer)
            if kinds:
                conditions.append(sql.or_(table.c.kind.in_(kinds), table.c.what.in_(kinds)))
            page = _PAGE if left is None else min(_PAGE, left)
            statement = sql.select(table.c.sequence, table.c.kind, table.c.body).where(*conditions)
            rows = self._rows(statement.order_by(table.c.sequence).limit(page))
            for sequence, kind, body in rows:
                after = sequence
                yield Stored(sequence, from_json(kind, body))
            if len(rows) < page:
                return
            left = None if left is None else left - len(rows)

    def newest(
        self, limit: int, *, peer: str = "", kinds: tuple[str, ...] = (), before: int | None = None
    ) -> list[Stored]:
        """The last facts, newest first."""
        table = tables.facts
        conditions = [table.c.sequence < before] if before is not None else []
        if peer:
            conditions.append(table.c.peer == peer)
        if kinds:
            conditions.append(sql.or_(table.c.kind.in_(kinds), table.c.what.in_(kinds)))
        statement = sql.select(table.c.sequence, table.c.kind, table.c.body).where(*conditions)
        rows = self._rows(statement.order_by(table.c.sequence.desc()).limit(limit))
        return [Stored(sequence, from_json(kind, body)) for sequence, kind, body in rows]

    def times(self) -> tuple[float, float] | None:
        """When the first and the last fact were seen, Unix seconds; None where there is none."""
        low, high = self._rows(
            sql.select(sql.func.min(tables.facts.c.seen_at), sql.func.max(tables.facts.c.seen_at))
        )[0]
        return None if low is None else (low, high)

    def heard(self, peer: str) -> tuple[str, int]:
        """The process and the number in it of the last event of a peer that is stored."""
        table = tables.facts
        statement = sql.select(table.c.body).where(table.c.peer == peer, table.c.kind == "reported")
        body = self._scalar(statement.order_by(table.c.sequence.desc()).limit(1))
        if body is None:
            return "", 0
        fact = from_json("reported", body)
        assert isinstance(fact, Reported)
        return fact.boot, fact.sequence

    def round(self, number: int) -> dict[str, Any] | None:
        """A decided round, as ``view.plain`` gives it."""
        body = self._scalar(sql.select(tables.time_lines.c.body).where(tables.time_lines.c.round == number))
        return None if body is None else dict(json.loads(body))

    def rounds(self, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """Decided rounds, newest first."""
        where = [] if before is None else [tables.time_lines.c.round < before]
        statement = sql.select(tables.time_lines.c.body).where(*where)
        rows = self._rows(statement.order_by(tables.time_lines.c.round.desc()).limit(limit))
        return [json.loads(body) for (body,) in rows]

    def series(self, points: int, first: int = 0, last: int | None = None) -> list[Point]:
        """Decided rounds as points of a chart, oldest first; of more than ``points`` every n-th.

        Args:
            points: How many at most, about.
            first: From this round on.
            last: Up to this round.
        """
        table = tables.rounds
        where = [table.c.round >= first] + ([] if last is None else [table.c.round <= last])
        count = int(self._scalar(sql.select(sql.func.count()).select_from(table).where(*where)) or 0)
        columns = [table.c[name] for name in Point.__dataclass_fields__]
        statement = sql.select(*columns).where(*where, table.c.round % max(1, -(-count // points)) == 0)
        return [Point(*row) for row in self._rows(statement.order_by(table.c.round))]

    def credits(
        self, limit: int, *, peer: str = "", after: tuple[int, int, str] | None = None
    ) -> list[Credit]:
        """Lines of the credit ledger in the chain's order.

        Args:
            limit: At most so many.
            peer: Of this peer only.
            after: Those after the line with this epoch, round and peer.
        """
        table = tables.credits
        place = sql.tuple_(table.c.epoch, table.c.round, table.c.peer)
        conditions = [] if after is None else [place > sql.tuple_(*(sql.literal(part) for part in after))]
        if peer:
            conditions.append(table.c.peer == peer)
        columns = (
            table.c.epoch, table.c.round, table.c.peer, table.c.at, table.c.claimed, table.c.verified, table.c.total,
            table.c.rounds,
        )  # fmt: skip
        statement = sql.select(*columns).where(*conditions)
        rows = self._rows(statement.order_by(table.c.epoch, table.c.round, table.c.peer).limit(limit))
        return [Credit(*row) for row in rows]

    def totals(self, limit: int, after: str = "") -> list[tuple[str, int, int]]:
        """Peer, verified tokens and rounds of everybody with credits, by peer."""
        table = tables.totals
        statement = sql.select(table.c.peer, table.c.verified, table.c.rounds).where(table.c.peer > after)
        return [tuple(row) for row in self._rows(statement.order_by(table.c.peer).limit(limit))]

    def audit(self, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """Entries of the audit log, newest first."""
        where = [] if before is None else [tables.audit.c.number < before]
        statement = sql.select(tables.audit.c.body, tables.audit.c.chained).where(*where)
        rows = self._rows(statement.order_by(tables.audit.c.number.desc()).limit(limit))
        return [{**json.loads(body), "chained": chained} for body, chained in rows]

    def audit_broken(self) -> int | None:
        """The first entry of the audit log that is not what was written, or follows a gap; None if all hold."""
        before, expected = "", 1
        rows = self._rows(
            sql.select(tables.audit.c.number, tables.audit.c.body, tables.audit.c.chained).order_by(
                tables.audit.c.number
            )
        )
        for number, body, chained in rows:
            before = _link(before, body)
            if number != expected or chained != before:
                return int(number)
            expected += 1
        return None

    def audit_last(self) -> int:
        """The newest entry's number."""
        return int(self._scalar(sql.select(sql.func.max(tables.audit.c.number))) or 0)

    def admissions(self) -> list[tuple[str, float, bool, int, str]]:
        """Peer, first time, seat, expiry and what let it in, of all that were admitted."""
        table = tables.admissions
        columns = (table.c.peer, table.c.first_at, table.c.seat, table.c.expires_at, table.c.admitted_by)
        return [tuple(row) for row in self._rows(sql.select(*columns).order_by(table.c.first_at))]

    # ---- one statement

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


def _row(sequence: int, fact: Fact) -> dict[str, Any]:
    reported = isinstance(fact, Reported)
    return {
        "sequence": sequence,
        "seen_at": fact.seen_at,
        "kind": kind_of(fact),
        "what": fact.kind[:64].replace("\0", "") if reported else "",  # type: ignore[attr-defined]
        "peer": subject_of(fact)[:64].replace("\0", ""),
        "body": to_json(fact),
    }


def _upsert(connection: Connection, table: sql.Table, keys: list[str], rows: list[dict[str, Any]]) -> Any:
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table).values(rows)
    others = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=others)


def _credit(connection: Connection, fact: Decided) -> None:
    """Lines of the credit ledger for a certified round: from its roster, and from nothing else."""
    lines, sums = tables.credits, tables.totals
    known = sql.select(lines.c.peer).where(lines.c.epoch == fact.epoch, lines.c.round == fact.round).limit(1)
    if not fact.roster or fact.begins or connection.execute(known).first() is not None:
        return
    peers = [entry.peer for entry in fact.roster]
    found = connection.execute(
        sql.select(sums.c.peer, sums.c.verified, sums.c.rounds).where(sums.c.peer.in_(peers))
    )
    held = {peer: (int(total), int(count)) for peer, total, count in found}
    rows = []
    for entry in fact.roster:
        total, count = held.get(entry.peer, (0, 0))
        place = (fact.epoch, fact.round, entry.peer, fact.seen_at)
        rows.append(Credit(*place, entry.tokens, entry.verified, total + entry.verified, count + 1))
    connection.execute(lines.insert(), [asdict(row) for row in rows])
    totals = [{"peer": row.peer, "verified": row.total, "rounds": row.rounds} for row in rows]
    connection.execute(_upsert(connection, sums, ["peer"], totals))


def _chain(connection: Connection, fact: Acted) -> None:
    table = tables.audit
    latest = sql.select(table.c.chained).order_by(table.c.number.desc()).limit(1)
    before = connection.execute(latest).scalar() or ""
    body = to_json(fact)
    row = {"number": fact.number, "at": fact.seen_at, "body": body, "chained": _link(before, body)}
    connection.execute(table.insert(), [row])


def _link(before: str, body: str) -> str:
    return blake3(b"intellect.audit\0" + before.encode() + b"\0" + body.encode()).hexdigest()


def _admit(connection: Connection, fact: Admitted) -> None:
    table = tables.admissions
    known = connection.execute(sql.select(table.c.first_at).where(table.c.peer == fact.peer)).scalar()
    row = {
        "peer": fact.peer, "first_at": known if known is not None else fact.seen_at, "last_at": fact.seen_at,
        "seat": fact.seat, "expires_at": fact.expires_at, "admitted_by": fact.by,
    }  # fmt: skip
    if known is not None and fact.renewal:
        del row["admitted_by"]
        connection.execute(table.update().where(table.c.peer == fact.peer), row)
        return
    connection.execute(_upsert(connection, table, ["peer"], [row]))


def _keep_rounds(connection: Connection, rounds: Iterable[Round]) -> None:
    points = [asdict(point(entry)) for entry in rounds]
    bodies = [
        {"round": entry.round, "body": json.dumps(plain(entry), separators=(",", ":"))} for entry in rounds
    ]
    connection.execute(_upsert(connection, tables.rounds, ["round"], points))
    connection.execute(_upsert(connection, tables.time_lines, ["round"], bodies))
