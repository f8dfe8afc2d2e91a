"""Files are seen whole or not at all, and failures of the disk have codes."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol import files
from protocol.errors import Code, NodeError
from protocol.files import read_whole, storage_error, write_whole


def test_a_file_is_written_whole_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_whole(path, [b"one", memoryview(b"two")])
    assert read_whole(path) == b"onetwo"
    write_whole(path, [b"short"])
    assert read_whole(path) == b"short" and os.listdir(path.parent) == ["file"]


def test_a_write_that_fails_half_way_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, [b"before"])

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(NodeError) as refused:
        write_whole(path, parts())
    assert refused.value.code == Code.STO_FULL
    assert read_whole(path) == b"before" and os.listdir(tmp_path) == ["file"]


def test_what_a_killed_writer_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "file.tmp").write_bytes(b"x" * 100)
    write_whole(tmp_path / "file", [b"new"])
    assert read_whole(tmp_path / "file") == b"new" and os.listdir(tmp_path) == ["file"]


def test_two_writers_of_one_file_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[bytes]:
        yield b"a" * 10
        begun.set()
        go_on.wait(30)
        yield b"a" * 10

    first = threading.Thread(target=write_whole, args=(path, slow()))
    second = threading.Thread(target=write_whole, args=(path, [b"b" * 20]))
    first.start()
    assert begun.wait(30)
    second.start()
    while not _waits(tmp_path / "file.tmp"):
        pass
    go_on.set()
    first.join()
    second.join()
    assert read_whole(path) == b"b" * 20 and os.listdir(tmp_path) == ["file"]


def _waits(path: Path) -> bool:
    """Whether somebody waits for the lock of a file."""
    inode = f":{path.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_a_directory_in_the_way_is_an_error_with_a_code(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(NodeError) as refused:
        write_whole(tmp_path / "file", [b"x"])
    assert refused.value.code == Code.STO_UNWRITABLE and os.listdir(tmp_path) == ["file"]
    with pytest.raises(NodeError) as refused:
        read_whole(tmp_path / "file")
    assert refused.value.code == Code.STO_UNWRITABLE


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, Code.STO_FULL),
        (errno.EDQUOT, Code.STO_FULL),
        (errno.EFBIG, Code.STO_FULL),
        (errno.EIO, Code.STO_CORRUPT),
        (errno.EACCES, Code.STO_UNWRITABLE),
        (errno.EROFS, Code.STO_UNWRITABLE),
    ],
)
def test_each_failure_of_a_disk_has_its_code(number: int, code: Code) -> None:
    error = storage_error(OSError(number, os.strerror(number)), Path("/x/y"))
    assert error.code == code and "/x/y" in error.sentence


def test_a_short_read_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: whole(fd, min(size, 7), offset))
    with open(path, "rb") as file:
        assert files.read_exactly(file.fileno(), 50, 10) == bytes(range(10, 60))
        assert files.read_exactly(file.fileno(), 50, 90) == bytes(range(90, 100)), "fewer only at the end"
