"""Addresses that outlive a node's process."""

import json
from pathlib import Path

import pytest

from node.remembered import Remembered

ANA, BEN, CAT = (f"/ip4/10.0.0.{number}/tcp/1/p2p/peer{number}" for number in (1, 2, 3))
MOVED = "/ip4/10.0.0.9/tcp/1/p2p/peer1"


def test_those_that_left_stay_behind_those_that_are_there(tmp_path: Path) -> None:
    Remembered(tmp_path).keep_peers([ANA, BEN])
    Remembered(tmp_path).keep_peers([MOVED, CAT])
    assert Remembered(tmp_path).peers() == (MOVED, CAT, BEN)
    Remembered(tmp_path).keep_peers([])
    assert Remembered(tmp_path).peers() == (MOVED, CAT, BEN), "nobody there is no reason to forget"


def test_relays_that_are_seen_come_first(tmp_path: Path) -> None:
    remembered = Remembered(tmp_path)
    remembered.keep_relays((ANA, BEN))
    assert remembered.relays([CAT, BEN]) == (CAT, BEN, ANA)
    remembered.keep_relays(())
    assert remembered.relays() == (ANA, BEN)


def test_only_so_many_are_kept(tmp_path: Path) -> None:
    remembered = Remembered(tmp_path)
    remembered.keep_peers([f"/ip4/10.0.0.1/tcp/{port}/p2p/peer{port}" for port in range(1000)])
    assert len(remembered.peers()) == 256
    assert len(remembered.relays([f"relay{number}" for number in range(100)])) == 16


@pytest.mark.parametrize("text", [b"", b"{", b"7", b"null", b"\xff"])
def test_a_damaged_file_is_as_none(tmp_path: Path, text: bytes) -> None:
    for name in ("peers.json", "relays.json"):
        (tmp_path / name).write_bytes(text)
    assert Remembered(tmp_path).peers() == Remembered(tmp_path).relays() == ()
    Remembered(tmp_path).keep_peers([ANA])
    assert json.loads((tmp_path / "peers.json").read_bytes()) == [ANA]


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "peers.json").mkdir()
    Remembered(tmp_path).keep_peers([ANA])
    assert Remembered(tmp_path).peers() == ()
