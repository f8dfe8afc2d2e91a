"""A run's start record is written once."""

import asyncio
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from diloco.rounds.certificate import Certified
from node.roles.founding import FOUNDED_FILE, write_start
from protocol.testing import VirtualLoop
from protocol.units import PeerId
from tests.node.roles.test_coordinator import Office, identity


class Founder:
    """The founder's coordinator, whose members are all here."""

    def __init__(self, office: Office) -> None:
        self.has_root_key = True
        self.office = office
        self.asked = 0

    async def begin(self) -> Certified:
        self.asked += 1
        return self.office.begin(1, 2, 3)


async def found(founder: Founder, folder: Path, *, begun: list[bool]) -> tuple[list[Certified], list[str]]:
    taken: list[Certified] = []
    said: list[str] = []
    answers = iter(begun)

    def emit(kind: str, /, **fields: Any) -> None:
        said.append(kind)

    made: Any = founder
    start = await write_start(made, folder, lambda: next(answers), taken.append, emit)
    assert taken == ([start] if start is not None else [])
    return taken, said


async def test_a_run_is_founded_once(tmp_path: Path) -> None:
    founder = Founder(Office(tmp_path))
    taken, _ = await found(founder, tmp_path, begun=[False, False])
    assert len(taken) == 1 and (tmp_path / FOUNDED_FILE).exists()
    taken, said = await found(founder, tmp_path, begun=[False])
    assert not taken and said == ["ledger.lost"], (
        "its ledger is gone, and a second start would be another chain"
    )
    taken, said = await found(founder, tmp_path, begun=[True])
    assert not taken and not said and founder.asked == 1


async def test_who_finds_the_chain_while_it_waits_founds_nothing(tmp_path: Path) -> None:
    founder = Founder(Office(tmp_path))
    taken, _ = await found(founder, tmp_path, begun=[False, True])
    assert not taken and (tmp_path / FOUNDED_FILE).exists()


async def test_a_delegates_key_founds_nothing_and_leaves_no_mark(tmp_path: Path) -> None:
    founder = Founder(Office(tmp_path))
    founder.has_root_key = False
    taken, said = await found(founder, tmp_path, begun=[False])
    assert not taken and not said and not founder.asked and not (tmp_path / FOUNDED_FILE).exists()


def test_a_run_begins_with_somebody_however_late_they_come(tmp_path: Path) -> None:
    """The coordinator trains nothing itself, and its members take longer to come than it waits for all of them."""
    office = Office(tmp_path)
    late = identity(7).peer_id
    came: list[float] = []

    def peers() -> list[PeerId]:
        return [late] if came else []

    office.network.roles, office.network.peers = ("coordinator",), peers
    patience = office.genesis.sections.round.start_within.total_seconds()

    async def scene() -> Certified:
        begins = asyncio.ensure_future(office.coordinator.begin())
        await asyncio.sleep(3 * patience + 10)
        assert not begins.done()
        raw = office.admit(7)
        office.network.members = {late: SimpleNamespace(roles=("trainer",), admission=raw, boot=b"b" * 16)}
        came.append(asyncio.get_running_loop().time())
        return await begins

    with closing(VirtualLoop()) as loop:
        start = loop.run_until_complete(scene())
    assert [elector.peer for elector in start.value.electorate] == [late]
