"""Reading the store, in pages: facts, rounds, charts, credits, the audit log, admissions."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql
from blake3 import blake3

from node.coordinator import tables
from node.coordinator.database import Database
from node.coordinator.facts import Fact, Reported
from node.coordinator.facts_json import from_json
from node.coordinator.view import Round

_PAGE = 1000


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


class Reading(Database):
    """What can be read of a store; every call may raise ``StoreError``."""

    def spilled(self) -> str:
        """Up to which place a spill file's facts are here; empty for none."""
        found = sql.select(tables.meta.c.value).where(tables.meta.c.key == "spilled")
        return str(self._scalar(found) or "")

    def last(self) -> int:
        """The newest fact's number; 0 where there is none."""
        return int(self._scalar(sql.select(sql.func.max(tables.facts.c.sequence))) or 0)

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

    def round_text(self, number: int) -> str | None:
        """A decided round as JSON."""
        found = self._scalar(sql.select(tables.time_lines.c.body).where(tables.time_lines.c.round == number))
        return None if found is None else str(found)

    def round(self, number: int) -> dict[str, Any] | None:
        """The same, read."""
        text = self.round_text(number)
        return None if text is None else dict(json.loads(text))

    def round_texts(self, limit: int, before: int | None = None) -> list[tuple[int, str]]:
        """Numbers and JSON of decided rounds, newest first."""
        table = tables.time_lines
        where = [] if before is None else [table.c.round < before]
        statement = sql.select(table.c.round, table.c.body).where(*where)
        return [tuple(row) for row in self._rows(statement.order_by(table.c.round.desc()).limit(limit))]

    def rounds(self, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """The same, read."""
        return [json.loads(text) for _, text in self.round_texts(limit, before)]

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
            before = link(before, body)
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


def link(before: str, body: str) -> str:
    """The hash of an entry of the audit log with that of the one before it, hex."""
    return blake3(b"intellect.audit\0" + before.encode() + b"\0" + body.encode()).hexdigest()
