"""What a member stores is there after a kill, or refused when it is not what it was."""

import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from diloco.digest import state_digest
from diloco.layout import Grid
from diloco.rounds.certificate import Certified
from diloco.rounds.events import Persist
from diloco.rounds.values import Elector, ReducedChunk, Value, value_digest
from diloco.store.checkpoints import Checkpoints
from diloco.store.ledger import Ledger
from diloco.store.reduced import ReducedStore
from protocol.errors import Code, NodeError
from protocol.messages import encode

GRID = Grid(600, 256)


def certified(number: int, epoch: int = 0, base: bytes = b"\1" * 32) -> Certified:
    value = Value(
        epoch=epoch, round=number, previous=b"\2" * 32, base=base, electorate=(Elector(peer="anna"),)
    )
    data = encode(value)
    return Certified(value, data, value_digest(data), 1, (b"vote",))


def test_a_promise_and_the_chain_are_there_when_the_ledger_is_opened_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    promise = Persist(0, 3, 5, 5, b"value", b"close")
    for number in (-1, 0, 1, 2):
        ledger.append(certified(number))
    ledger.save_promise(Persist(0, 2, 1, 0, b"", b""))
    ledger.save_promise(promise)
    again = Ledger(tmp_path / "ledger")  # the first is not closed: as after a kill
    assert again.promise() == promise
    assert again.tip() == certified(2)
    assert again.get(1) == certified(1) and again.get(7) is None


def test_a_second_value_of_a_decided_round_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.append(certified(0))
    ledger.append(certified(0))
    with pytest.raises(NodeError) as refused:
        ledger.append(certified(0, base=b"\3" * 32))
    assert refused.value.code == Code.RND_CHAIN
    assert ledger.tip() == certified(0)


def test_a_damaged_ledger_says_so(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_bytes(b"no database, but long enough to look like a file of one" * 20)
    with pytest.raises(NodeError) as refused:
        Ledger(tmp_path / "ledger")
    assert refused.value.code == Code.STO_CORRUPT


def state(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.standard_normal(600).astype(np.float32), random.standard_normal(600).astype(np.float32)


def test_a_checkpoint_has_the_same_bytes_on_every_member_and_reads_back(tmp_path: Path) -> None:
    params, momentum = state(1)
    digest = state_digest(4, params, momentum, GRID)
    paths = [Checkpoints(tmp_path / name, "run", GRID).write(4, params, momentum, digest) for name in "ab"]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    back = Checkpoints(tmp_path / "a", "run", GRID).read(paths[0], 4, digest)
    assert np.array_equal(back[0], params) and np.array_equal(back[1], momentum)


@pytest.mark.parametrize("at", [0, 7, 40, 200, 1000, -1])
def test_any_flipped_byte_of_a_checkpoint_is_found(tmp_path: Path, at: int) -> None:
    checkpoints = Checkpoints(tmp_path, "run", GRID)
    params, momentum = state(2)
    digest = state_digest(4, params, momentum, GRID)
    path = checkpoints.write(4, params, momentum, digest)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(NodeError) as refused:
        checkpoints.read(path, 4, digest)
    assert refused.value.code in (Code.STO_CORRUPT, Code.STO_SCHEMA)


def test_a_checkpoint_of_another_round_run_or_digest_is_refused(tmp_path: Path) -> None:
    params, momentum = state(3)
    digest = state_digest(4, params, momentum, GRID)
    path = Checkpoints(tmp_path, "run", GRID).write(4, params, momentum, digest)
    for run, number, wanted in (("run", 5, digest), ("other", 4, digest), ("run", 4, b"\0" * 32)):
        with pytest.raises(NodeError):
            Checkpoints(tmp_path, run, GRID).read(path, number, wanted)


def reduced(*parts: bytes) -> Value:
    chunks = tuple(ReducedChunk(digest=blake3(part).digest(), included=b"\1") for part in parts)
    return Value(epoch=0, round=2, previous=b"", base=b"", chunks=chunks)


def test_reduced_bytes_of_two_candidates_stand_side_by_side_until_one_is_decided(tmp_path: Path) -> None:
    store = ReducedStore(tmp_path, [4, 3])
    first, second = reduced(b"aaaa", b"bbb"), reduced(b"cccc", b"ddd")
    store.write(0, 2, first.chunks, [b"aaaa", b"bbb"])
    store.write(0, 2, second.chunks, [b"cccc", b"ddd"])
    assert store.read(first) == [b"aaaa", b"bbb"] and store.chunk(second, 1) == b"ddd"
    store.keep_only(second)
    assert not store.has(first) and store.has(second)
    store.prune(3)
    assert not store.has(second)


def test_damaged_reduced_bytes_are_removed_and_reported(tmp_path: Path) -> None:
    store = ReducedStore(tmp_path, [4, 3])
    value = reduced(b"aaaa", b"bbb")
    store.write(0, 2, value.chunks, [b"aaaa", b"bbb"])
    store.path(0, 2, value.chunks).write_bytes(b"aaaabbc")
    with pytest.raises(NodeError) as refused:
        store.read(value)
    assert refused.value.code == Code.STO_CORRUPT and not store.has(value)


def test_a_ledger_may_be_closed_while_other_threads_read_it(tmp_path: Path) -> None:
    for number in range(50):
        ledger = Ledger(tmp_path / f"ledger{number}")
        reading = threading.Barrier(4)

        def read(ledger: Ledger = ledger, reading: threading.Barrier = reading) -> None:
            reading.wait()
            with suppress(sqlite3.ProgrammingError):  # closed
                while True:
                    ledger.get(3)
                    ledger.evidence()

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        reading.wait()
        ledger.close()
        for thread in threads:
            thread.join()


def test_the_other_side_of_a_fork_replaces_all_that_follows_the_value_that_both_have(tmp_path: Path) -> None:
    def link(
        number: int, previous: bytes, mark: bytes, *, epoch: int = 0, start: bytes = b"", last: bytes = b""
    ) -> Certified:
        voters = (Elector(peer="anna"),)
        value = Value(epoch=epoch, round=number, previous=previous, base=mark * 32, electorate=voters)
        data = encode(value)
        return Certified(value, data, value_digest(data), 1, () if start else (b"vote",), start, last)

    first = link(0, b"\2" * 32, b"1")
    ours, voted = link(1, first.digest, b"2"), link(1, first.digest, b"3")
    our_reset = link(1, ours.digest, b"2", epoch=1, start=b"reset")
    reset = link(1, voted.digest, b"3", epoch=1, start=b"reset", last=voted.data)
    ledger = Ledger(tmp_path / "ledger")
    for certified in (first, ours, our_reset, link(2, our_reset.digest, b"4", epoch=1)):
        ledger.append(certified)
    ledger.append(reset, over=True)
    assert [row.digest for row in ledger.after(0, -2)] == [first.digest, reset.digest]
    assert ledger.get(1) is not None and ledger.get(1).digest == voted.digest  # type: ignore[union-attr]
