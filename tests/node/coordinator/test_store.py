"""Facts in a database, and what is made from them, on SQLite and on PostgreSQL."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sql

from node.coordinator import tables
from node.coordinator.database import database_url
from node.coordinator.facts import Acted, Admitted, Decided, Reported
from node.coordinator.fold import replay
from node.coordinator.store import Store
from node.coordinator.view_json import plain, restored, snapshot
from protocol.errors import Code, NodeError
from tests.node.coordinator.sample import START, history, one_round, opening, peer, report


def test_what_was_written_is_read_in_order_and_makes_the_same_view(store: Store) -> None:
    facts = history(3)
    for begin in range(0, len(facts), 7):
        store.append(facts[begin : begin + 7])
    again = [stored.fact for stored in store.facts()]
    assert [plain_fact(fact) for fact in again] == [plain_fact(fact) for fact in facts]
    assert [stored.sequence for stored in store.facts()] == list(range(1, len(facts) + 1))
    assert snapshot(store.view()) == snapshot(replay(facts)) | {"sequence": len(facts)}


def plain_fact(fact: object) -> str:
    return json.dumps(plain(fact), sort_keys=True)


def test_a_start_goes_on_from_the_last_stored_view(store: Store) -> None:
    facts = history(4)
    store.append(facts[:40])
    store.keep_view(replay(facts[:40]), facts[39].seen_at)
    store.append(facts[40:])
    assert snapshot(store.view()) == snapshot(replay(facts)) | {"sequence": len(facts)}
    with store._engine.begin() as connection:  # so it is not made from the beginning
        connection.execute(tables.facts.delete().where(tables.facts.c.sequence <= 40))
    assert snapshot(store.view()) == snapshot(replay(facts)) | {"sequence": len(facts)}


def test_a_view_survives_its_json() -> None:
    view = replay([*history(3), Acted(seen_at=START, number=1, actor="op", action="ban", before={"a": 1})])
    assert restored(json.loads(json.dumps(snapshot(view)))) == view


def test_the_view_of_an_earlier_time_is_made_from_what_was_seen_until_then(store: Store) -> None:
    facts = history(4)
    store.append(facts)
    earlier = store.view(until=START + 60 * 2 + 55)
    assert earlier.tip.round == 2
    assert store.view(until=START - 1).tip.round == -2


def test_facts_are_found_by_peer_and_kind_in_pages(store: Store) -> None:
    store.append(history(3))
    applied = list(store.facts(peer=peer(1), kinds=("apply",)))
    assert [stored.fact.fields["round"] for stored in applied if isinstance(stored.fact, Reported)] == [
        1,
        2,
        3,
    ]
    newest = store.newest(2, kinds=("decided",))
    assert [stored.fact.round for stored in newest if isinstance(stored.fact, Decided)] == [2, 1]
    (older,) = store.newest(1, kinds=("decided",), before=newest[-1].sequence)
    assert isinstance(older.fact, Decided) and older.fact.round == 0
    assert store.heard(peer(1)) == ("", 10)
    assert store.heard("nobody") == ("", 0)


def test_credits_come_from_certified_rosters_with_running_totals(store: Store) -> None:
    store.append([*opening(), *one_round(0), *one_round(1, absent=(1,)), *one_round(2)])
    lines = store.credits(100, peer=peer(1))
    assert [(line.round, line.verified, line.total, line.rounds) for line in lines] == [
        (0, 18_000, 18_000, 1), (2, 18_000, 36_000, 2),
    ]  # fmt: skip
    everybody = store.credits(3)
    rest = store.credits(100, after=(everybody[-1].epoch, everybody[-1].round, everybody[-1].peer))
    assert len(everybody) + len(rest) == 8
    boast = report(peer(0), 99, START + 5, "train.end", round=0, tokens=10**12, seconds=1.0)
    store.append([boast])
    assert len(store.credits(100)) == 8


def test_a_round_that_is_written_twice_is_credited_once(store: Store) -> None:
    store.append(history(1))
    store.append([fact for fact in one_round(0) if isinstance(fact, Decided)])
    assert [line.total for line in store.credits(100)] == [18_000] * 3


def test_the_audit_log_shows_when_somebody_changed_or_removed_an_entry(store: Store) -> None:
    for number in (1, 2, 3):
        store.append(
            [Acted(seen_at=START, number=number, actor="op", action="ban", peer=peer(number), reason="x")]
        )
    assert store.audit_broken() is None and store.audit_last() == 3
    assert [entry["number"] for entry in store.audit(2)] == [3, 2]
    assert [entry["number"] for entry in store.audit(2, before=2)] == [1]
    with store._engine.begin() as connection:
        connection.execute(tables.audit.delete().where(tables.audit.c.number == 2))
    assert store.audit_broken() == 3
    with store._engine.begin() as connection:
        body = connection.execute(
            sql.select(tables.audit.c.body).where(tables.audit.c.number == 1)
        ).scalar_one()
        connection.execute(
            tables.audit.update().values(body=body.replace("ban", "fan")).where(tables.audit.c.number == 1)
        )
    assert store.audit_broken() == 1


def test_a_renewed_admission_keeps_what_let_the_peer_in(store: Store) -> None:
    store.append([Admitted(seen_at=1.0, peer=peer(1), by="invitation 3", expires_at=10)])
    store.append([Admitted(seen_at=2.0, peer=peer(1), by="", renewal=True, expires_at=20, seat=True)])
    assert store.admissions() == [(peer(1), 1.0, True, 20, "invitation 3")]


def test_decided_rounds_are_read_in_pages(store: Store) -> None:
    view = replay(history(5))
    store.append([], [entry for entry in view.rounds.values() if entry.outcome == "decided"])
    assert [entry["round"] for entry in store.rounds(2)] == [4, 3]
    assert [entry["round"] for entry in store.rounds(9, before=3)] == [2, 1, 0]
    found = store.round(3)
    assert found is not None and found["marks"][peer(0)]["ready"] == START + 60 * 3 + 42
    assert store.round(99) is None


def test_a_chart_has_a_point_per_round_or_every_so_many(store: Store) -> None:
    view = replay(history(9))
    store.append([], [entry for entry in view.rounds.values() if entry.outcome == "decided"])
    points = store.series(100)
    assert [entry.round for entry in points] == list(range(9))
    assert (points[1].loss, points[1].seconds, points[1].sent) == (2.99, 60.0, 3_000_000)
    assert [entry.round for entry in store.series(3)] == [0, 3, 6]
    assert [entry.round for entry in store.series(9, first=2, last=4)] == [2, 3, 4]


def test_texts_that_a_database_cannot_hold_are_kept_as_far_as_it_can(store: Store) -> None:
    store.append([report("a\0b", 1, START, "node.phase", sentence="x\0\ud800<script>", round=0)])
    (stored,) = store.facts()
    assert isinstance(stored.fact, Reported) and stored.fact.fields["sentence"] == "x\0\ud800<script>"


def test_a_database_of_another_version_is_refused(store: Store) -> None:
    store.prepare()
    with store._engine.begin() as connection:
        connection.execute(tables.meta.update().values(value="99"))
    with pytest.raises(NodeError) as caught:
        Store(store.url).prepare()
    assert caught.value.code == Code.STO_SCHEMA


@pytest.mark.parametrize("text", ["mysql://x/y", "not a url", "sqlite://"])
def test_other_databases_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(NodeError) as caught:
        database_url(text, tmp_path)
    assert caught.value.code == Code.CFG_USAGE


def test_without_a_url_the_database_is_a_file_of_the_folder(tmp_path: Path) -> None:
    assert database_url("", tmp_path) == f"sqlite:///{tmp_path}/coordinator.sqlite"
    assert database_url("postgresql://me:pw@host/db", tmp_path) == "postgresql+psycopg://me:pw@host/db"
