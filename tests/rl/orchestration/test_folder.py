"""Rollout files on disk, within a budget."""

from pathlib import Path

import pytest

from protocol.errors import Code, NodeError
from rl.orchestration.folder import Folder
from rl.rollouts.files import marker_of


def write(path: Path, nbytes: int = 100) -> Path:
    path.write_bytes(b"x" * nbytes)
    marker_of(path).write_bytes(b"signed")
    return path


def test_what_comes_counts_with_its_whole_size_and_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path, budget=250)
    first, second = folder.coming("w", 0), folder.coming("w", 1)
    folder.reserve(first, 150)
    first.write_bytes(b"x" * 10)
    assert folder.used == 150
    with pytest.raises(NodeError) as full:
        folder.reserve(second, 101)
    assert full.value.code is Code.STO_FULL and "150 of 250 bytes; 101 more" in full.value.sentence
    folder.reserve(first, 150)  # again, after a broken connection
    folder.drop(first)
    assert folder.used == 0
    folder.reserve(second, 101)


def test_a_file_is_taken_with_its_marker_and_deleted_with_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path, budget=250)
    path = folder.coming("w", 0)
    folder.reserve(path, 100)
    taken = folder.take(write(path), bytes(32))
    assert taken == folder.path(bytes(32)) and marker_of(taken).exists() and not path.exists()
    assert folder.used == 100
    folder.delete([bytes(32)])
    assert folder.used == 0 and not marker_of(taken).exists()


def test_evidence_outlives_its_file_and_only_the_newest_is_kept(tmp_path: Path) -> None:
    folder = Folder(tmp_path, budget=1000, evidence=2)
    digests = [bytes([number]) * 32 for number in range(3)]
    for digest in digests:
        write(folder.path(digest))
        folder.keep_evidence([digest])
    folder.delete(digests)
    kept = [folder.evidence(digest) for digest in digests]
    assert kept[0] is None
    assert all(path is not None and path.exists() and marker_of(path).exists() for path in kept[1:])


def test_after_a_crash_what_no_row_names_goes_and_what_is_missing_is_said(tmp_path: Path) -> None:
    folder = Folder(tmp_path, budget=1000)
    good, orphan, half, missing = (bytes([number]) * 32 for number in range(4))
    for digest in (good, orphan, half):
        write(folder.path(digest))
    marker_of(folder.path(half)).unlink()
    write(folder.coming("w", 0))
    again = Folder(tmp_path, budget=1000)
    assert set(again.tidy([good, half, missing])) == {half, missing}
    assert again.path(good).exists() and not again.path(orphan).exists() and not again.coming("w", 0).exists()
