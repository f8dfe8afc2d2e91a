"""Whatever is done to a ledger, verifying it says so."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from diloco.rounds import founding
from diloco.rounds.proofs import Proofs
from diloco.rounds.records import Reset
from diloco.rounds.values import Decided
from diloco.store.ledger import Ledger
from diloco.store.verification import MOST_PROBLEMS, Problem, Report, values, verify_ledger
from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.messages import decode, encode
from protocol.testing import Swarm
from tests.diloco.member.fleet import OPERATOR, tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd

GENESIS = tiny_genesis(rounds=6)
PROOFS = Proofs(GENESIS.run_id, GENESIS.operator, GENESIS.base)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger of one of three members after six rounds, with a reset after the third."""
    folder = tmp_path_factory.mktemp("run")
    with Swarm(seed=3, run=None) as swarm:
        crowd = Crowd(swarm, folder, GENESIS)
        first = crowd.seats[0].member

        async def scene() -> None:
            minutes = timedelta(minutes=5)
            await crowd.until(lambda: first.state is not None and first.state.round == 3, minutes)
            await crowd.until(lambda: first.state.base is not None, minutes)
            state = first.state
            assert state is not None and state.base is not None
            peers = {host.peer_id: True for host in swarm.hosts}
            value = founding.make_reset(
                first.setting.rules, state.value, state.tip.digest, state.base, peers, b"\7" * 32
            )
            first.give_reset(seal(OPERATOR, GENESIS.run_id, Reset(value=encode(value))).raw)
            await crowd.finished()

        swarm.run(scene())
        for seat in crowd.seats:
            seat.member.ledger.close()
        return crowd.seats[1].folder / "ledger.sqlite"


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may spoil."""
    return Path(shutil.copy(original, tmp_path / "ledger.sqlite"))


def check(path: Path) -> Report:
    return verify_ledger(path, PROOFS)


def problems(path: Path) -> tuple[Problem, ...]:
    return check(path).problems


def change(path: Path, statement: str, *fields: object) -> None:
    with sqlite3.connect(path) as database:
        assert database.execute(statement, fields).rowcount > 0
    database.close()


def body(path: Path, number: int = 2) -> Decided:
    (row,) = sqlite3.connect(path).execute(
        "SELECT decided FROM decided WHERE round = ? AND NOT reset", (number,)
    )
    return decode(Decided, row[0])


def put(path: Path, decided: Decided, number: int = 2) -> None:
    change(path, "UPDATE decided SET decided = ? WHERE round = ? AND NOT reset", encode(decided), number)


def test_an_untouched_ledger_holds_wherever_it_is(original: Path, tmp_path: Path) -> None:
    report = check(original)
    assert not report.problems and report.values == 8, "the start record, six rounds, a reset"
    assert report.tip is not None and (report.tip.value.epoch, report.tip.value.round) == (1, 5)
    kinds = [(c.value.epoch, c.value.round, bool(c.start)) for c in values(original)]
    assert kinds == [
        (0, -1, True), (0, 0, False), (0, 1, False), (0, 2, False),
        (1, 2, True), (1, 3, False), (1, 4, False), (1, 5, False),
    ]  # fmt: skip
    away = tmp_path / "away"
    away.mkdir()
    copy = Path(shutil.copy(original, away))
    assert check(copy) == report
    assert [each.name for each in away.iterdir()] == ["ledger.sqlite"], "a copy is left as it is"


def test_a_ledger_that_is_being_written_can_be_verified(path: Path) -> None:
    ledger = Ledger(path)
    promise = ledger.promise()
    assert promise is not None
    ledger.save_promise(promise)
    assert not problems(path)
    ledger.save_promise(replace(promise, voted_value=b"other", voted_attempt=1))
    assert problems(path), "what is in the log beside the file counts"
    ledger.close()


@pytest.mark.parametrize("number", [-1, 0, 2, 5])
def test_no_byte_of_a_body_can_be_changed(path: Path, number: int) -> None:
    select = "SELECT decided FROM decided WHERE round = ? AND NOT reset"
    (data,) = sqlite3.connect(path).execute(select, (number,)).fetchone()
    step = max(1, len(data) // 60)
    for place in range(number % 3, len(data), step):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        change(path, "UPDATE decided SET decided = ? WHERE round = ? AND NOT reset", bytes(flipped), number)
        found = problems(path)
        assert found and found[0].round == number, f"byte {place} of {len(data)}"


@pytest.mark.parametrize("column", ["epoch", "round", "reset"])
@pytest.mark.parametrize("number", [-1, 0, 2, 5])
def test_no_number_beside_a_body_can_be_changed(path: Path, column: str, number: int) -> None:
    change(path, f"UPDATE decided SET {column} = 17 WHERE round = ? AND NOT reset", number)
    assert problems(path)


@pytest.mark.parametrize("wrong", [b"\0" * 32, None, "text", 3, b""])
def test_the_digest_beside_a_body_cannot_be_changed(path: Path, wrong: object) -> None:
    if wrong is None:
        wrong = b"\0" * 31
    change(path, "UPDATE decided SET digest = ? WHERE round = 2 AND NOT reset", wrong)
    assert {problem.code for problem in problems(path)} == {Code.STO_CORRUPT}


@pytest.mark.parametrize("wrong", ["text", 3, b"", b"\0", b"x" * (5 << 20)])
def test_a_body_of_another_kind_or_size_is_found_and_what_follows_is_judged_by_itself(
    path: Path, wrong: object
) -> None:
    change(path, "UPDATE decided SET decided = ? WHERE round = 4", wrong)
    found = problems(path)
    assert found[0].code == Code.STO_CORRUPT and found[-1].code == Code.RND_CHAIN and found[-1].round == 5


@pytest.mark.parametrize("row", range(7))
def test_no_row_can_be_taken_away(path: Path, row: int) -> None:
    change(
        path,
        "DELETE FROM decided WHERE rowid = (SELECT rowid FROM decided ORDER BY epoch, round LIMIT 1 OFFSET ?)",
        row,
    )
    found = problems(path)
    assert found and {problem.code for problem in found} == {Code.RND_CHAIN}


def test_a_chain_cut_at_its_end_is_an_older_one_unless_the_promise_knows_better(path: Path) -> None:
    change(path, "DELETE FROM decided WHERE round = 5")
    report = check(path)
    assert not report.problems and report.tip is not None and report.tip.value.round == 4
    change(path, "DELETE FROM decided WHERE round = 4")
    (found,) = problems(path)
    assert found.code == Code.RND_CHAIN and "missing" in found.sentence


def test_rows_cannot_change_places(path: Path) -> None:
    one, other = body(path, 3), body(path, 4)
    put(path, one, 4)
    put(path, other, 3)
    assert {problem.code for problem in problems(path)} >= {Code.STO_CORRUPT, Code.RND_CHAIN}


def test_a_row_cannot_be_added(path: Path) -> None:
    change(path, "INSERT INTO decided SELECT 2, round, digest, decided, reset FROM decided WHERE round = 5")
    assert problems(path)


def without_a_quorum(decided: Decided) -> Decided:
    return replace(decided, votes=decided.votes[:1])


def one_voter_twice(decided: Decided) -> Decided:
    return replace(decided, votes=decided.votes[:1] * 2)


def another_attempt(decided: Decided) -> Decided:
    return replace(decided, attempt=decided.attempt + 1)


def another_order(decided: Decided) -> Decided:
    return replace(decided, votes=decided.votes[::-1])


def something_more(decided: Decided) -> Decided:
    return replace(decided, votes=(*decided.votes, decided.votes[0]))


def a_start_beside(decided: Decided) -> Decided:
    return replace(decided, start=b"\1")


@pytest.mark.parametrize(
    "spoil",
    [
        without_a_quorum,
        one_voter_twice,
        another_attempt,
        another_order,
        something_more,
        a_start_beside,
    ],
)
def test_a_certificate_is_what_it_was(path: Path, spoil: Callable[[Decided], Decided]) -> None:
    put(path, spoil(body(path)))
    assert problems(path)[0].round == 2


def test_votes_of_strangers_and_of_another_value_certify_nothing(path: Path) -> None:
    put(path, replace(body(path, 1), votes=body(path, 2).votes), 1)
    assert Code.RND_CERTIFICATE in {problem.code for problem in problems(path)}


def test_a_start_record_of_somebody_else_begins_nothing(path: Path) -> None:
    other = Proofs(GENESIS.run_id, PROOFS.operator, b"\0" * 32)
    assert verify_ledger(path, other).problems[0].code == Code.RND_CHAIN
    another = tiny_genesis(rounds=7)
    found = verify_ledger(path, Proofs(another.run_id, another.operator, another.base)).problems
    assert {problem.code for problem in found} >= {Code.WIRE_WRONG_RUN}


@pytest.mark.parametrize(
    ("column", "wrong"),
    [("epoch", 9), ("round", 90), ("voted_value", b"x"), ("voted_close", b"x"), ("voted_attempt", "x")],
)
def test_the_vote_beside_the_chain_is_one_that_was_asked_for(path: Path, column: str, wrong: object) -> None:
    change(path, f"UPDATE promise SET {column} = ?", wrong)
    assert problems(path)


def test_a_vote_for_another_value_than_the_leader_closed_is_found(path: Path) -> None:
    change(path, "UPDATE promise SET voted_value = ?", body(path, 4).value)
    assert problems(path)


@pytest.mark.parametrize("statement", ["DROP TABLE promise", "ALTER TABLE decided ADD COLUMN more"])
def test_another_table_is_no_ledger(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    assert [problem.code for problem in problems(path)] == [Code.STO_CORRUPT]


def test_another_schema_is_said(path: Path) -> None:
    change(path, "UPDATE meta SET value = '99'")
    assert [problem.code for problem in problems(path)] == [Code.STO_SCHEMA]


@pytest.mark.parametrize("size", [0, 1, 99, 4096, 8192, -4096, -1])
def test_a_file_that_was_cut_is_found(path: Path, size: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:size] if size >= 0 else data[: len(data) + size])
    assert problems(path)


def test_garbage_is_no_ledger_and_costs_no_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    for seed in range(20):
        noise = random.Random(seed)
        path.write_bytes(b"SQLite format 3\0" * (seed % 2) + noise.randbytes(10000))
        assert problems(path)
        with pytest.raises(NodeError) as refused:
            list(values(path))
        assert refused.value.code == Code.STO_CORRUPT


def test_any_byte_of_the_file_is_either_noticed_or_means_nothing(path: Path) -> None:
    data = path.read_bytes()
    before = [encode_all(path)]
    noise = random.Random(11)
    found = 0
    for _ in range(150):
        place = noise.randrange(len(data))
        spoiled = bytearray(data)
        spoiled[place] ^= 1 << noise.randrange(8)
        path.write_bytes(spoiled)
        if problems(path):
            found += 1
        else:
            assert [encode_all(path)] == before, f"byte {place}"
    assert found > 30


def encode_all(path: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT * FROM decided ORDER BY epoch, round").fetchall()
        promise = database.execute("SELECT * FROM promise").fetchall()
    database.close()
    return [*rows, *promise]


def test_a_file_full_of_nonsense_is_given_up_after_a_while(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.executemany(
            "INSERT INTO decided VALUES (?, ?, x'00', x'00', 0)", [(7, n) for n in range(10000)]
        )
    database.close()
    assert len(problems(path)) == MOST_PROBLEMS
