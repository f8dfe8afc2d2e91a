"""The coordinator begins a new epoch by itself only where it sees nobody who may be going on without it."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diloco.member.admission import Admission, admit
from node.eventlog import Event
from node.roles.coordinator import Coordinator
from node.roles.resetting import Resetting
from node.showing import Showing
from protocol.testing import Swarm
from tests.diloco.member.fleet import tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd, Seat

LOST = timedelta(seconds=8)
GENESIS = tiny_genesis(rounds=1000, deadline={"lost_after": "8 s"}, round={"chunk": 4096})


def crowd_of(swarm: Swarm, folder: Path, count: int) -> Crowd:
    operator = swarm.identity(0)
    genesis = GENESIS.model_copy(update={"operator_root": operator.peer_id})
    return Crowd(swarm, folder, genesis, count=count, operator=operator)


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=61, keyed=True, run=None) as made:
        yield made


class Desk:
    """The coordinator beside the first member; records of those on the other side of a cut are not renewed."""

    def __init__(self, crowd: Crowd, folder: Path, *, automatic: bool = True) -> None:
        self.crowd, self.seat = crowd, crowd.seats[0]
        self.cut_at: float | None = None
        self.away: list[Seat] = []
        self.renewed: Callable[[Seat], bool] = lambda seat: seat not in self.away
        self.shown = Showing("ann", "demo", lambda: 0)
        network: Any = self
        self.me = self.seat.host.peer_id
        self.banned: frozenset[str] = frozenset()
        setting = self.seat.member.setting
        operator: Any = crowd.operator
        coordinator = Coordinator(
            operator, crowd.genesis, setting.rules, network, lambda: self.seat.member.ledger, self.emit,
            crowd.swarm.wall, folder / "invited.json",
        )  # fmt: skip
        self.resetting = Resetting(
            coordinator, self.seat.member, network, self.emit, crowd.swarm.wall, automatic=automatic,
            lost_after=LOST,
        )  # fmt: skip

    def emit(self, kind: str, /, **fields: Any) -> None:
        self.seat.emit(kind, **fields)
        self.shown.take(Event(0.0, kind, fields))

    @property
    def members(self) -> dict[str, Any]:
        now = self.crowd.swarm.wall()
        found = {}
        for seat in self.crowd.seats:
            peer = seat.host.peer_id
            admission = admit(
                self.crowd.operator,
                self.crowd.genesis.run_id,
                Admission(peer=peer, roles=("trainer",), seat=True),
            )
            issued = now if self.renewed(seat) or self.cut_at is None else self.cut_at - LOST.total_seconds()
            found[peer] = SimpleNamespace(
                admission=admission, issued_at=issued, boot=seat.host.endpoint.boot, roles=("trainer",)
            )
        return found

    def cut(self, here: int) -> None:
        """Leave this many members with the coordinator."""
        self.away = self.crowd.seats[here:]
        self.cut_at = self.crowd.swarm.wall()
        self.crowd.swarm.network.partition(
            [seat.host for seat in self.crowd.seats[:here]], [seat.host for seat in self.away]
        )

    async def run(self) -> None:
        self.seat.host.spawn(self.resetting.run())


async def at_round(crowd: Crowd, seats: list[Seat], number: int) -> None:
    await crowd.until(
        lambda: all(s.member.state is not None and s.member.state.round >= number for s in seats),
        timedelta(minutes=5),
    )


def epochs(crowd: Crowd) -> set[int]:
    return {seat.member.state.epoch for seat in crowd.seats if seat.member.state is not None}


@pytest.mark.failure_mode(33)
def test_cut_off_with_two_of_twelve_the_coordinator_begins_no_epoch_and_follows_after_healing(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = crowd_of(swarm, tmp_path, 12)
    desk = Desk(crowd, tmp_path)

    async def scene() -> None:
        await at_round(crowd, crowd.seats, 1)
        await desk.run()
        desk.cut(2)
        await crowd.until(lambda: bool(desk.seat.of("reset.needed")), timedelta(minutes=5))
        assert "fewer than a third" in desk.shown.status().trouble
        number = max(seat.member.state.round for seat in desk.away if seat.member.state)
        await at_round(crowd, desk.away, number + 1)
        assert not desk.seat.of("reset.given")
        swarm.network.heal()
        await at_round(crowd, crowd.seats, number + 3)

    swarm.run(scene())
    crowd.check_equal()
    assert epochs(crowd) == {0} and desk.shown.status().trouble == ""


@pytest.mark.failure_mode(33)
def test_cut_off_with_five_of_twelve_it_begins_one_and_all_are_in_one_chain_after_healing(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = crowd_of(swarm, tmp_path, 12)
    desk = Desk(crowd, tmp_path)

    async def scene() -> None:
        await at_round(crowd, crowd.seats, 1)
        await desk.run()
        desk.cut(5)
        await crowd.until(lambda: bool(desk.seat.of("reset.given")), timedelta(minutes=5))
        here = crowd.seats[:5]
        assert desk.seat.member.state is not None
        await at_round(crowd, here, desk.seat.member.state.round + 2)
        assert {seat.member.state.epoch for seat in desk.away if seat.member.state} == {0}, (
            "the others went on"
        )
        swarm.network.heal()
        number = max(seat.member.state.round for seat in crowd.seats if seat.member.state)
        await crowd.until(lambda: epochs(crowd) == {1}, timedelta(minutes=5))
        await at_round(crowd, crowd.seats, number + 2)

    swarm.run(scene())
    assert len(desk.seat.of("reset.given")) == 1
    chains = [[certified.digest for certified in seat.member.ledger.after(0, -2)] for seat in crowd.seats]
    longest = max(chains, key=len)
    assert all(chain == longest[: len(chain)] for chain in chains)


def test_without_leave_in_the_run_file_it_only_says_that_a_person_is_needed(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = crowd_of(swarm, tmp_path, 3)
    desk = Desk(crowd, tmp_path, automatic=False)

    async def scene() -> None:
        await at_round(crowd, crowd.seats, 1)
        await desk.run()
        desk.cut(1)
        await crowd.until(lambda: bool(desk.seat.of("reset.needed")), timedelta(minutes=5))

    swarm.run(scene())
    assert not desk.seat.of("reset.given")
    assert "intellect-node admin reset" in desk.shown.status().trouble


def test_a_voter_that_is_silent_here_and_renews_its_record_elsewhere_keeps_the_epoch(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = crowd_of(swarm, tmp_path, 3)
    desk = Desk(crowd, tmp_path)

    async def scene() -> None:
        await at_round(crowd, crowd.seats, 1)
        await desk.run()
        desk.renewed = lambda seat: True
        desk.cut(1)
        await crowd.until(lambda: bool(desk.seat.of("reset.needed")), timedelta(minutes=5))
        assert "live and do not ask" in desk.seat.of("reset.needed")[-1]["sentence"]
        assert not desk.seat.of("reset.given")
        desk.renewed = lambda seat: seat not in desk.away
        await crowd.until(lambda: bool(desk.seat.of("reset.given")), timedelta(minutes=5))

    swarm.run(scene())
