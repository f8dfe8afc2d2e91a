"""Rows on disk: together or not at all, and readable by the next life."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.errors import Code, NodeError
from rl.orchestration.rows import File, GroupFacts, Judge, Kept, Opinion, Place, Tally, Work, Worker
from rl.orchestration.store import Store
from rl.work.standing import Standing

RUN = "ab" * 32
GROUPS = (GroupFacts(7, 3, 4, (0.0, 0.1, -1e-9), 12), GroupFacts(8, 3, 3, (1.0,), 0))
OPINIONS = (
    Opinion("v", False, "E-RL-075", "Proof 3 differs.", 1000),
    Opinion("u", False, undecided=True, doubt=True),
)
ROWS = (
    Work("w", 4, 3, (7, 8), late=True),
    File(
        bytes(range(32)), "w", 3, 3, 999, GROUPS, 12, b"l" * 32, Standing.SUSPICIOUS, 2, OPINIONS, "appealed", "E", 3,
        True,
    ),
    Place(7, 2, ("w", "x"), True, 5),
    Worker("w", 5, 10, 1, 3, 2, 8, "axl", "Banned.", (bytes(32), b"e" * 32)),
    Judge("v", 3, 1, 1),
    Tally(12),
)  # fmt: skip


def test_every_row_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "orchestrator.sqlite", RUN)
    store.save(ROWS, ())
    store.close()
    assert Store(tmp_path / "orchestrator.sqlite", RUN).load() == Kept.of(ROWS)


def test_rows_are_replaced_and_removed_by_their_keys(tmp_path: Path) -> None:
    store = Store(tmp_path / "orchestrator.sqlite", RUN)
    store.save(ROWS, ())
    store.save((Place(7, 3), Place(9)), (("workers", "w"), ("judges", "nobody")))
    kept = store.load()
    assert kept.places == {"7": Place(7, 3), "9": Place(9)} and not kept.workers


def test_when_the_disk_is_full_nothing_of_a_change_is_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "orchestrator.sqlite", RUN)
    store.save(ROWS, ())
    store._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(NodeError) as refused:
        store.save(tuple(Worker(f"{n}", banned="x" * 4000) for n in range(50)), (("places", "7"),))
    assert refused.value.code is Code.STO_FULL
    assert store.load() == Kept.of(ROWS)


def test_another_run_or_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "orchestrator.sqlite"
    store = Store(path, RUN)
    store.save(ROWS, ())
    store.close()
    with pytest.raises(NodeError) as other:
        Store(path, "cd" * 32)
    assert other.value.code is Code.STO_SCHEMA
    with sqlite3.connect(path) as database:
        database.execute("UPDATE rows SET row = ? WHERE kind = 'files'", (b"\xc1",))
    with pytest.raises(NodeError) as damaged:
        Store(path, RUN).load()
    assert damaged.value.code is Code.STO_CORRUPT
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(NodeError) as foreign:
        Store(path, RUN)
    assert foreign.value.code is Code.STO_CORRUPT


_WRITER = """
import sys
from pathlib import Path
from rl.orchestration.rows import Place, Tally
from rl.orchestration.store import Store

store = Store(Path(sys.argv[1]), sys.argv[2])
number = 0
while True:
    number += 1
    store.save((Tally(number), *(Place(p, tries=number) for p in range(20))), ())
    print(number, flush=True)
"""


def test_a_writer_that_is_killed_leaves_whole_changes_and_all_it_spoke_of(tmp_path: Path) -> None:
    path = tmp_path / "orchestrator.sqlite"
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), RUN],
            stdout=subprocess.PIPE,
            text=True,
            cwd=os.getcwd(),
        )
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(20)][-1]
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        kept = Store(path, RUN).load()
        number = kept.tallies["tally"].acknowledged
        assert number >= said
        assert {place.tries for place in kept.places.values()} == {number}
