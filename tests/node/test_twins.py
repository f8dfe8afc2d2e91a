"""A node notices that another process publishes under its key."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from node.network import Network
from protocol.directory.records import PeerRecord
from protocol.envelope import Sealed, seal
from protocol.identity import Identity
from protocol.units import Address


class Shelf:
    """A directory that holds one record at a time under each key, as the DHT does."""

    def __init__(self) -> None:
        self.held: dict[str, Sealed[PeerRecord]] = {}
        self.multiaddrs: tuple[str, ...] = ()
        self.clock_warning = None

        self.time = 1000.0

    def now(self) -> float:
        return self.time

    async def publish(self, record: Sealed[PeerRecord], *, shelf: str) -> None:
        """As the DHT does: of two records the one that expires later stays, and of two equal ones the older."""
        held = self.held.get(record.sender)
        if held is None or record.message.expires_at > held.message.expires_at:
            self.held[record.sender] = record

    async def records(self, shelf: str, **_: Any) -> tuple[Sealed[PeerRecord], ...]:
        return tuple(self.held.values()) if shelf == "members" else ()


def node(identity: Identity, folder: Path, shelf: Any) -> Network:
    network = Network(
        identity, folder, listen=Address("127.0.0.1", 0), directory_port=0, announce="", upload=None,
        roles=("trainer",), emit=lambda kind, /, **fields: None,
    )  # fmt: skip
    network.directory = shelf
    network.endpoint = SimpleNamespace(address=Address("127.0.0.1", 4242))  # type: ignore[assignment]
    network._admission = b"admitted"
    return network


@pytest.mark.failure_mode(32)
async def test_each_of_two_processes_with_one_key_sees_the_other_in_the_directory(tmp_path: Path) -> None:
    shelf, identity = Shelf(), Identity.ephemeral(b"k" * 32)
    older, younger = (node(identity, tmp_path, shelf) for _ in range(2))
    assert older.boot != younger.boot
    older.began(1000)
    await older.publish()
    await older.look()
    assert older.twin is None, "its own record is no twin"
    younger.began(2000)
    await younger.publish()
    await older.look()
    assert older.twin == (younger.boot, 2000)
    await older.publish()
    await younger.look()
    assert younger.twin == (older.boot, 1000), "the round machine sees that this one is older, and goes on"


async def test_a_record_from_before_the_member_began_tells_nothing(tmp_path: Path) -> None:
    shelf, identity = Shelf(), Identity.ephemeral(b"k" * 32)
    one, other = (node(identity, tmp_path, shelf) for _ in range(2))
    await other.publish()
    await one.look()
    assert one.twin is None
    stranger = seal(Identity.ephemeral(b"s" * 32), None, PeerRecord(peer=identity.peer_id, boot=b"b" * 16))
    shelf.held = {stranger.sender: stranger}
    await one.look()
    assert one.twin is None


async def test_a_node_that_starts_again_with_its_clock_set_back_is_found_where_it_is_now(
    tmp_path: Path,
) -> None:
    shelf, identity = Shelf(), Identity.ephemeral(b"k" * 32)
    before, after = (node(identity, tmp_path, shelf) for _ in range(2))
    await before.publish()
    shelf.time -= 20
    await after.publish()
    record = shelf.held[identity.peer_id].message
    assert record.boot == after.boot
    assert record.expires_at - record.issued_at == pytest.approx(240)
    shelf.time += 60
    await after.publish()
    assert shelf.held[identity.peer_id].message.issued_at == shelf.time, "it keeps its own time from then on"


async def test_a_record_from_far_in_the_future_is_no_measure(tmp_path: Path) -> None:
    shelf, identity = Shelf(), Identity.ephemeral(b"k" * 32)
    before, after = (node(identity, tmp_path, shelf) for _ in range(2))
    shelf.time += 3600
    await before.publish()
    shelf.time -= 3600
    assert await after._time_to_issue("members") == shelf.time
