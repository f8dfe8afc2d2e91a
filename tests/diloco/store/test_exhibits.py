"""What was averaged, on disk."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from diloco.reduce.messages import Exhibit
from diloco.store.exhibits import Exhibits
from protocol.errors import NodeError

ONE = [Exhibit(statement=b"header", basis=b"basis"), Exhibit(chunk=3, data=b"d" * 999, proof=(b"p" * 32,))]
DIGEST = b"s" * 32


def test_what_was_written_is_read_in_its_order(tmp_path: Path) -> None:
    kept = Exhibits(tmp_path)
    kept.write(5, DIGEST, 3, ONE)
    assert list(kept.read(DIGEST, 3)) == ONE
    assert list(kept.read(DIGEST, 4)) == list(kept.read(b"t" * 32, 3)) == []


def test_old_rounds_are_removed(tmp_path: Path) -> None:
    kept = Exhibits(tmp_path)
    kept.prune(3)
    for number in (1, 2, 3):
        kept.write(number, bytes([number]) * 32, 0, ONE)
    kept.prune(3)
    assert [path.name for path in tmp_path.iterdir()] == ["3"]
    assert list(kept.read(b"\3" * 32, 0)) == ONE


def test_only_the_newest_evidence_stays(tmp_path: Path) -> None:
    kept = Exhibits(tmp_path)
    for number in range(5):
        kept.write(number, bytes([number]) * 32, 0, ONE)
        (path,) = tmp_path.glob(f"{number}/*")
        os.utime(path, (number, number))
    kept.keep(2)
    assert [bool(list(kept.read(bytes([number]) * 32, 0))) for number in range(5)] == [False] * 3 + [True] * 2


def test_a_file_that_was_cut_off_or_damaged_is_no_surprise(tmp_path: Path) -> None:
    kept = Exhibits(tmp_path)
    kept.write(5, DIGEST, 3, ONE)
    (path,) = tmp_path.glob("*/*")
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        try:
            assert list(kept.read(DIGEST, 3)) in ([], ONE[:1]), "whole exhibits only"
        except NodeError:
            continue
    path.write_bytes(b"\xff" * 40)
    with pytest.raises(NodeError):
        list(kept.read(DIGEST, 3))


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NodeError):
        Exhibits(tmp_path / "file").write(1, DIGEST, 0, ONE)


def test_several_threads_may_read_and_remove_at_once(tmp_path: Path) -> None:
    kept = Exhibits(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        for first in range(0, 400, 8):
            for number in range(first, first + 8):
                kept.write(number, bytes([number % 256]) * 32, 0, ONE)
            deeds = [pool.submit(kept.prune, first + ahead) for ahead in range(1, 9)]
            deeds += [pool.submit(kept.has, bytes(32), 0) for _ in range(4)] + [pool.submit(kept.keep, 3)]
            for deed in deeds:
                deed.result()
    assert not kept.has(bytes([7]) * 32, 0)
