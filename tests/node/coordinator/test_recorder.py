"""A database that is locked, full or gone: reads go on with a banner, and nothing that was learned is lost."""

import sqlite3
import time
from concurrent.futures import Future
from pathlib import Path
from threading import Event

import pytest

from node.coordinator import database as database_module
from node.coordinator.facts import Acted, Fact
from node.coordinator.recorder import Recorder
from node.coordinator.service import Service
from node.coordinator.spill import FILE, Spill
from node.coordinator.store import Store
from node.coordinator.view_json import snapshot
from tests.node.coordinator.sample import START, history, one_round, opening, peer

PATIENCE = 60


class Desk:
    """A recorder over a store, and when its trouble changed."""

    def __init__(self, url: str, folder: Path) -> None:
        self.store, self.folder = Store(url), folder
        self.troubled, self.well = Event(), Event()
        self.recorder = Recorder(self.store, folder, self.on_trouble)

    def on_trouble(self, sentence: str) -> None:
        (self.troubled if sentence else self.well).set()

    def put(self, facts: list[Fact]) -> "list[Future[None]]":
        return [self.recorder.put(fact) for fact in facts]

    def end(self) -> None:
        self.recorder.stop()
        self.store.close()


def wait(futures: "list[Future[None]]") -> None:
    for future in futures:
        future.result(PATIENCE)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock is waited for only briefly."""
    monkeypatch.setattr(database_module, "_WAIT", 0.05)
    monkeypatch.setattr("node.coordinator.recorder._AGAIN", 0.05)


def test_what_is_put_is_stored_in_order(database: str, tmp_path: Path) -> None:
    desk = Desk(database, tmp_path)
    desk.recorder.start()
    facts = history(3)
    wait(desk.put(facts))
    assert len(list(desk.store.facts())) == len(facts)
    assert [entry["round"] for entry in desk.store.rounds(9)] == [2, 1, 0]
    marks = desk.store.round(1)
    assert marks is not None and "applied" in marks["marks"][peer(0)], (
        "a round is stored whole once the next is decided"
    )
    desk.end()


def test_a_locked_database_loses_nothing(quick: None, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    desk = Desk(f"sqlite:///{path}", tmp_path)
    desk.recorder.start()
    first, second = history(2), list(one_round(2))
    wait(desk.put(first))
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    wait(desk.put(second))  # durable in the spill file
    assert desk.troubled.wait(PATIENCE) and "locked" in desk.recorder.trouble
    assert desk.store.view().tip.round == 1, "what is there can still be read"
    assert (tmp_path / FILE).exists()
    blocker.execute("ROLLBACK")
    blocker.close()
    assert desk.well.wait(PATIENCE)
    assert len(list(desk.store.facts())) == len(first) + len(second)
    assert desk.store.view().tip.round == 2 and not (tmp_path / FILE).exists()
    assert [line.total for line in desk.store.credits(99, peer=peer(0))] == [18_000, 36_000, 54_000]
    desk.end()


def test_a_full_database_loses_nothing(quick: None, tmp_path: Path) -> None:
    desk = Desk(f"sqlite:///{tmp_path / 'c.sqlite'}", tmp_path)
    desk.store.prepare()
    with desk.store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()

    limit = [f"PRAGMA max_page_count={pages}"]

    @database_module.sql.event.listens_for(desk.store._engine, "begin")
    def bounded(connection: database_module.Connection) -> None:
        connection.exec_driver_sql(limit[0])

    desk.recorder.start()
    facts = history(5)
    wait(desk.put(facts))
    assert desk.troubled.wait(PATIENCE) and "full" in desk.recorder.trouble
    limit[0] = "PRAGMA max_page_count=1000000"
    assert desk.well.wait(PATIENCE)
    assert len(list(desk.store.facts())) == len(facts)
    desk.end()


def test_what_was_spilled_is_brought_home_by_the_next_start_and_only_once(
    quick: None, tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    desk = Desk(f"sqlite:///{folder / 'c.sqlite'}", tmp_path)
    desk.recorder.start()
    facts = history(3)
    wait(desk.put(facts))
    desk.end()
    kept = (tmp_path / FILE).read_bytes()
    folder.mkdir()
    for _ in range(2):  # the second time, as if the process had died before it removed the file
        again = Desk(f"sqlite:///{folder / 'c.sqlite'}", tmp_path)
        again.recorder.start()
        wait(
            again.put([Acted(seen_at=START, number=again.store.audit_last() + 1, actor="op", action="pause")])
        )
        again.end()
        if not _:
            stat = (tmp_path / FILE).exists()
            assert not stat
    assert len(list(Store(f"sqlite:///{folder / 'c.sqlite'}").facts())) == len(facts) + 2
    assert kept.count(b"\n") == len(facts)


def test_a_crash_between_the_database_and_the_spill_file_writes_nothing_twice(tmp_path: Path) -> None:
    store, spill = Store(f"sqlite:///{tmp_path / 'c.sqlite'}"), Spill(tmp_path / FILE)
    facts = history(2)
    spill.add(facts)
    batch = spill.after(store.spilled())
    assert batch is not None
    store.append(batch.facts, (), batch.place)  # and here it dies
    spill.add(list(one_round(2)))
    rest = spill.after(store.spilled())
    assert rest is not None and len(rest.facts) == len(list(one_round(2)))


def test_a_line_that_a_crash_cut_off_hides_no_other(tmp_path: Path) -> None:
    spill = Spill(tmp_path / FILE)
    spill.add(opening())
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'["decided", "{\\"seen')
    spill.add(list(one_round(0)))
    batch = spill.after("")
    assert batch is not None and len(batch.facts) == len(opening()) + len(list(one_round(0)))


def test_where_nothing_can_be_written_facts_wait_in_memory_and_collecting_stops(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.coordinator.recorder.QUEUE", 10)
    desk = Desk(f"sqlite:///{tmp_path / 'gone' / 'c.sqlite'}", tmp_path / "gone")
    desk.recorder.start()
    futures = desk.put(opening())
    with pytest.raises(OSError):
        futures[0].result(PATIENCE)
    desk.put(list(one_round(0)))
    assert desk.recorder.full
    (tmp_path / "gone").mkdir()
    assert desk.well.wait(PATIENCE)
    assert (
        len(list(desk.store.facts())) == len(opening()) + len(list(one_round(0))) and not desk.recorder.full
    )
    desk.end()


def test_a_service_whose_database_comes_late_shows_what_it_holds_and_what_was_learned_meanwhile(
    quick: None, tmp_path: Path
) -> None:
    before = Service(Store(f"sqlite:///{tmp_path / 'real.sqlite'}"), tmp_path)
    before.begin()
    for fact in history(2):
        before.take(fact)
    before.end()
    link = tmp_path / "late"
    service = Service(Store(f"sqlite:///{link / 'real.sqlite'}"), tmp_path)
    service.begin()
    for fact in one_round(2):
        service.take(fact)
    service.fold_taken()
    assert service.trouble and service.view.totals.rounds == 1
    link.symlink_to(tmp_path)
    while service.view.totals.rounds != 3:
        service.fold_taken()
    for fact in one_round(3):
        service.take(fact).result(PATIENCE)
    service.fold_taken()
    assert snapshot(service.view) == snapshot(service.store.view())
    assert service.view.totals.rounds == 4
    while service.trouble:
        time.sleep(0.01)
    service.end()
