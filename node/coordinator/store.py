"""The store: facts in a database, with what is made from them, written in batches.

Every call may raise ``StoreError``, when the database is locked, full or gone; who writes keeps what could not be
written (``node.coordinator.recorder``).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from node.coordinator import tables
from node.coordinator.database import upsert
from node.coordinator.facts import Acted, Admitted, Decided, Fact, Reported
from node.coordinator.facts_json import kind_of, subject_of, to_json
from node.coordinator.fold import fold
from node.coordinator.reading import Credit, Reading, link, point
from node.coordinator.view import Round, View
from node.coordinator.view_json import encoded, restored

SNAPSHOT_EVERY = 20_000
"""Facts between two stored views, from which a start and a replay go on."""


class Store(Reading):
    """One coordinator's database. Any thread may call it.

    Args:
        url: As ``database_url`` gives it.
    """

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
                connection.execute(upsert(connection, tables.meta, ["key"], place))
            return int(last + len(rows))

    def keep_view(self, view: View, at: float) -> None:
        """Store a view, from which a later start goes on.

        Raises:
            StoreError: It was not written.
        """
        body = encoded(view).decode()
        with self._transaction() as connection:
            row = {"sequence": view.sequence, "at": at, "body": body}
            connection.execute(upsert(connection, tables.snapshots, ["sequence"], [row]))

    def view(self, until: float | None = None) -> View:
        """The view at a time, Unix seconds, or now: the last stored one before it, and the facts since."""
        where = [] if until is None else [tables.snapshots.c.at <= until]
        statement = sql.select(tables.snapshots.c.body).where(*where)
        body = self._scalar(statement.order_by(tables.snapshots.c.sequence.desc()).limit(1))
        view = restored(json.loads(body)) if body else View()
        for stored in self.facts(after=view.sequence, until=until):
            view, _ = fold(view, stored.fact, stored.sequence)
        return view


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
    connection.execute(upsert(connection, sums, ["peer"], totals))


def _chain(connection: Connection, fact: Acted) -> None:
    table = tables.audit
    latest = sql.select(table.c.chained).order_by(table.c.number.desc()).limit(1)
    before = connection.execute(latest).scalar() or ""
    body = to_json(fact)
    row = {"number": fact.number, "at": fact.seen_at, "body": body, "chained": link(before, body)}
    connection.execute(table.insert(), [row])


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
    connection.execute(upsert(connection, table, ["peer"], [row]))


def _keep_rounds(connection: Connection, rounds: Iterable[Round]) -> None:
    points = [asdict(point(entry)) for entry in rounds]
    bodies = [{"round": entry.round, "body": encoded(entry).decode()} for entry in rounds]
    connection.execute(upsert(connection, tables.rounds, ["round"], points))
    connection.execute(upsert(connection, tables.time_lines, ["round"], bodies))
