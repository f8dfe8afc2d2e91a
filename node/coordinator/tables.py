"""The tables of a coordinator's database: facts, and what is made from them in the same transaction."""

import sqlalchemy as sql

SCHEMA = "1"

metadata = sql.MetaData()

_number = sql.BigInteger().with_variant(sql.Integer, "sqlite")

meta = sql.Table(
    "meta",
    metadata,
    sql.Column("key", sql.Text, primary_key=True),
    sql.Column("value", sql.Text, nullable=False),
)

facts = sql.Table(
    "facts",
    metadata,
    sql.Column("sequence", _number, primary_key=True, autoincrement=False),
    sql.Column("seen_at", sql.Float(53), nullable=False),
    sql.Column("kind", sql.Text, nullable=False),
    sql.Column("what", sql.Text, nullable=False),  # the event's kind, for reported facts
    sql.Column("peer", sql.Text, nullable=False),
    sql.Column("body", sql.Text, nullable=False),
)
sql.Index("facts_by_time", facts.c.seen_at)
sql.Index("facts_by_peer", facts.c.peer, facts.c.sequence)
sql.Index("facts_by_kind", facts.c.kind, facts.c.what, facts.c.sequence)

rounds = sql.Table(
    "rounds",
    metadata,
    sql.Column("round", _number, primary_key=True, autoincrement=False),
    sql.Column("epoch", _number, nullable=False),
    sql.Column("decided_at", sql.Float(53), nullable=False),
    sql.Column("seconds", sql.Float(53), nullable=False),
    sql.Column("tokens", _number, nullable=False),
    sql.Column("contributors", _number, nullable=False),
    sql.Column("sent", _number, nullable=False),
    sql.Column("loss", sql.Float(53), nullable=True),
    sql.Column("validation", sql.Float(53), nullable=True),
    sql.Column("speed", sql.Float(53), nullable=True),
)

# Apart from the numbers, so that a chart over all rounds reads little.
time_lines = sql.Table(
    "time_lines",
    metadata,
    sql.Column("round", _number, primary_key=True, autoincrement=False),
    sql.Column("body", sql.Text, nullable=False),
)

credits = sql.Table(
    "credits",
    metadata,
    sql.Column("epoch", _number, primary_key=True, autoincrement=False),
    sql.Column("round", _number, primary_key=True, autoincrement=False),
    sql.Column("peer", sql.Text, primary_key=True),
    sql.Column("at", sql.Float(53), nullable=False),
    sql.Column("claimed", _number, nullable=False),
    sql.Column("verified", _number, nullable=False),
    sql.Column("total", _number, nullable=False),
    sql.Column("rounds", _number, nullable=False),
)
sql.Index("credits_by_peer", credits.c.peer, credits.c.epoch, credits.c.round)

totals = sql.Table(
    "totals",
    metadata,
    sql.Column("peer", sql.Text, primary_key=True),
    sql.Column("verified", _number, nullable=False),
    sql.Column("rounds", _number, nullable=False),
)

audit = sql.Table(
    "audit",
    metadata,
    sql.Column("number", _number, primary_key=True, autoincrement=False),
    sql.Column("at", sql.Float(53), nullable=False),
    sql.Column("body", sql.Text, nullable=False),
    sql.Column("chained", sql.Text, nullable=False),  # BLAKE3 over the entry before and this body, hex
)

admissions = sql.Table(
    "admissions",
    metadata,
    sql.Column("peer", sql.Text, primary_key=True),
    sql.Column("first_at", sql.Float(53), nullable=False),
    sql.Column("last_at", sql.Float(53), nullable=False),
    sql.Column("seat", sql.Boolean, nullable=False),
    sql.Column("expires_at", _number, nullable=False),
    sql.Column("admitted_by", sql.Text, nullable=False),
)

snapshots = sql.Table(
    "snapshots",
    metadata,
    sql.Column("sequence", _number, primary_key=True, autoincrement=False),
    sql.Column("at", sql.Float(53), nullable=False),
    sql.Column("body", sql.Text, nullable=False),
)
sql.Index("snapshots_by_time", snapshots.c.at)
