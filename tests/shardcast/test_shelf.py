import os
from pathlib import Path

import pytest

from protocol.errors import Code, NodeError
from shardcast.building import build_manifest
from shardcast.manifest import Manifest
from shardcast.shelf import Shelf
from tests.own import open_files

CONTENT = os.urandom(10_000)


def stored(folder: Path, name: str = "ckpt/1", content: bytes = CONTENT) -> tuple[Manifest, Path]:
    path = folder / "file"
    path.write_bytes(content)
    return build_manifest(path, name, 4000), path


def all_of(shelf: Shelf, name: str) -> bytes:
    with shelf.open(name) as reading:
        return b"".join(reading.read(s.index, 0, s.size) for s in reading.manifest.shards)


def code_of(call: object) -> Code:
    with pytest.raises(NodeError) as caught:
        call()  # type: ignore[operator]
    return caught.value.code


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "shelf")


def test_what_is_added_can_be_read_in_pieces(shelf: Shelf, tmp_path: Path) -> None:
    shelf.add(*stored(tmp_path))
    assert all_of(shelf, "ckpt/1") == CONTENT
    with shelf.open("ckpt/1") as reading:
        assert reading.read(1, 10, 5) == CONTENT[4010:4015]
        assert reading.read(2, 1999, 50) == CONTENT[9999:]
        assert reading.read(2, 2000, 50) == b""
    assert shelf.names() == ("ckpt/1",)


@pytest.mark.failure_mode(13)
def test_the_file_that_was_added_may_be_removed_or_replaced(shelf: Shelf, tmp_path: Path) -> None:
    manifest, path = stored(tmp_path)
    shelf.add(manifest, path)
    path.unlink()
    path.write_bytes(b"something else")
    assert all_of(shelf, "ckpt/1") == CONTENT


def test_no_second_copy_is_made_on_the_same_file_system(shelf: Shelf, tmp_path: Path) -> None:
    manifest, path = stored(tmp_path)
    shelf.add(manifest, path)
    assert path.stat().st_nlink == 2


@pytest.mark.failure_mode(13)
def test_an_object_removed_while_it_is_read_is_read_to_its_end(shelf: Shelf, tmp_path: Path) -> None:
    shelf.add(*stored(tmp_path))
    with shelf.open("ckpt/1") as reading:
        first = reading.read(0, 0, 4000)
        shelf.remove("ckpt/1")
        assert shelf.names() == ()
        assert first + reading.read(1, 0, 4000) + reading.read(2, 0, 4000) == CONTENT
    assert code_of(lambda: all_of(shelf, "ckpt/1")) is Code.SHC_MISSING
    assert list(shelf.folder.iterdir()) == []


def test_a_name_can_be_given_anew_after_removal_and_old_readers_keep_the_old(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.add(*stored(tmp_path))
    newer = CONTENT[::-1]
    (tmp_path / "newer").mkdir()
    manifest, path = stored(tmp_path / "newer", content=newer)
    assert code_of(lambda: shelf.add(manifest, path)) is Code.SHC_NAME
    with shelf.open("ckpt/1") as old:
        shelf.remove("ckpt/1")
        shelf.add(manifest, path)
        assert old.read(0, 0, 4000) == CONTENT[:4000]
        assert all_of(shelf, "ckpt/1") == newer


def test_only_the_expected_object_is_opened(shelf: Shelf, tmp_path: Path) -> None:
    manifest, path = stored(tmp_path)
    shelf.add(manifest, path)
    with shelf.open("ckpt/1", manifest.digest):
        pass
    with pytest.raises(NodeError) as caught, shelf.open("ckpt/1", bytes(32)):
        pass
    assert caught.value.code is Code.SHC_MISSING


def test_adding_the_same_object_again_changes_nothing(shelf: Shelf, tmp_path: Path) -> None:
    shelf.add(*stored(tmp_path))
    shelf.add(*stored(tmp_path))
    assert all_of(shelf, "ckpt/1") == CONTENT


def test_a_shelf_opened_again_serves_what_it_served(shelf: Shelf, tmp_path: Path) -> None:
    shelf.add(*stored(tmp_path))
    again = Shelf(shelf.folder)
    assert again.names() == ("ckpt/1",) and all_of(again, "ckpt/1") == CONTENT


@pytest.mark.failure_mode(44)
@pytest.mark.parametrize(
    "damage", ["no marker", "half a marker", "half the data", "no data", "another's marker"]
)
def test_an_object_half_written_before_a_crash_is_not_served(
    shelf: Shelf, tmp_path: Path, damage: str
) -> None:
    shelf.add(*stored(tmp_path))
    data, marker = next(shelf.folder.glob("*.data")), next(shelf.folder.glob("*.manifest"))
    if damage == "no marker":
        marker.unlink()
    elif damage == "half a marker":
        marker.write_bytes(marker.read_bytes()[:-40])
    elif damage == "half the data":
        os.truncate(data, 5000)
    elif damage == "no data":
        data.unlink()
    else:
        marker.write_bytes(build_manifest(CONTENT, "ckpt/2", 4000).raw)
    assert Shelf(shelf.folder).names() == ()
    assert list(shelf.folder.iterdir()) == [], "what is left of it is swept away"


def test_a_manifest_that_is_not_of_the_file_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    manifest, path = stored(tmp_path)
    path.write_bytes(CONTENT[:-1])
    assert code_of(lambda: shelf.add(manifest, path)) is Code.SHC_MANIFEST
    unclosed = Manifest.parse(b"".join(manifest.raw.splitlines(keepends=True)[:-1]), closed=False)
    assert code_of(lambda: shelf.add(unclosed, path)) is Code.SHC_MANIFEST
    assert code_of(lambda: shelf.add(manifest, tmp_path / "absent")) is Code.STO_UNWRITABLE


def test_bytes_that_changed_on_disk_are_never_read_out(shelf: Shelf, tmp_path: Path) -> None:
    manifest, path = stored(tmp_path)
    shelf.add(manifest, path)
    assert all_of(shelf, "ckpt/1") == CONTENT  # all shards have been checked once
    with path.open("r+b") as file:
        file.seek(4500)
        file.write(b"!" if CONTENT[4500:4501] != b"!" else b"?")
    os.utime(path, ns=(1, 1))
    with shelf.open("ckpt/1") as reading:
        assert reading.read(0, 0, 4000) == CONTENT[:4000]
        assert code_of(lambda: reading.read(1, 0, 4000)) is Code.STO_CORRUPT


@pytest.mark.parametrize("name", ["../file", "/etc/passwd", "a/../../file", ""])
def test_a_name_that_is_a_path_opens_and_removes_nothing(shelf: Shelf, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"not yours")
    with pytest.raises(NodeError) as caught, shelf.open(name):
        pass
    assert caught.value.code is Code.SHC_NAME
    assert code_of(lambda: shelf.remove(name)) is Code.SHC_NAME
    assert (tmp_path / "file").exists()


def test_many_opened_objects_leave_no_file_open(shelf: Shelf, tmp_path: Path) -> None:
    shelf.add(*stored(tmp_path))
    before = open_files()
    for _ in range(20):
        all_of(shelf, "ckpt/1")
    assert not open_files() - before
