"""How long each fault holds up the others, with the default deadlines, in virtual time: docs/rounds.md states it."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from diloco.config import DeadlineSection
from protocol.testing import Swarm
from tests.diloco.member.fleet import tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd, Seat

DEFAULTS = DeadlineSection()
MINUTES = timedelta(minutes=20)
SILENT = DEFAULTS.silence + timedelta(seconds=0.5)
"""Within this time of a silence a peer is believed gone; 10 s is what is promised."""


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=4, keyed=True, run=None) as made:
        yield made


def five(swarm: Swarm, folder: Path) -> Crowd:
    """Five members with the default deadlines; a round takes some seconds."""
    operator = swarm.identity(0)
    given = {
        name: getattr(DEFAULTS, name)
        for name in ("ready_floor", "attempt", "progress", "heartbeat", "silence")
    }
    genesis = tiny_genesis(rounds=1000, deadline=given).model_copy(update={"operator_root": operator.peer_id})
    return Crowd(swarm, folder, genesis, count=5, operator=operator)


def at(seat: Seat, kind: str, act: Callable[[], None], **where: Any) -> None:
    """Do something once, at an event of a member."""
    emit, done = seat.emit, []

    def watch(name: str, /, **fields: Any) -> None:
        emit(name, **fields)
        if name == kind and not done and all(fields[key] == wanted for key, wanted in where.items()):
            done.append(True)
            act()

    object.__setattr__(seat.member.setting, "emit", watch)


def rounds_of(seats: list[Seat]) -> int:
    return max(seat.of("commit")[-1]["round"] for seat in seats if seat.of("commit"))


async def seconds_until(swarm: Swarm, crowd: Crowd, condition: Callable[[], bool]) -> float:
    began = swarm.time
    await crowd.until(condition, MINUTES)
    return swarm.time - began


@pytest.mark.failure_mode(12)
@pytest.mark.parametrize("fault", ["stopped", "killed", "without power", "cut off"])
def test_a_silent_member_is_noticed_within_ten_seconds(swarm: Swarm, tmp_path: Path, fault: str) -> None:
    crowd = five(swarm, tmp_path)
    victim, *others = crowd.seats
    deeds = {
        "stopped": victim.host.pause,
        "killed": victim.host.kill,
        "without power": lambda: victim.host.kill(silently=True),
        "cut off": lambda: swarm.network.partition([victim.host], [seat.host for seat in others]),
    }

    def noticed() -> bool:
        return all(
            any(gone["peer"] == victim.host.peer_id for gone in seat.of("peer.gone")) for seat in others
        )

    async def scene() -> None:
        await crowd.until(lambda: all(1 in seat.digests() for seat in crowd.seats), MINUTES)
        deeds[fault]()
        assert await seconds_until(swarm, crowd, noticed) <= SILENT.total_seconds() <= 10.0
        before = rounds_of(others)
        await crowd.until(lambda: rounds_of(others) > before, MINUTES)
        rosters = [commit["roster"] for commit in others[0].of("commit")]
        assert victim.host.peer_id not in rosters[-1]

    swarm.run(scene())
    crowd.check_equal()


PHASES = {
    "idle": ("train.step", {}),
    "ready": ("ready.sent", {}),
    "proposing": ("reduce.begin", {}),
    "certifying": ("reduce.end", {}),
}


@pytest.mark.failure_mode(7)
@pytest.mark.parametrize("silently", [False, True], ids=["killed", "without power"])
@pytest.mark.parametrize("phase", list(PHASES))
def test_a_leader_that_dies_holds_up_its_round_for_a_stated_time(
    swarm: Swarm, tmp_path: Path, phase: str, silently: bool
) -> None:
    """Its silence is noticed, the attempt ends a second later, and the next one decides: two attempts."""
    crowd = five(swarm, tmp_path)
    kind, where = PHASES[phase]
    dead: list[Seat] = []

    def kill_if_it_leads(seat: Seat) -> None:
        state = seat.member.state
        assert state is not None
        if not dead and state.round == 2 and state.leader(0) == seat.host.peer_id:
            dead.append(seat)
            seat.host.kill(silently=silently)

    for seat in crowd.seats:
        at(seat, kind, lambda seat=seat: kill_if_it_leads(seat), round=2, **where)  # type: ignore[misc]

    async def scene() -> None:
        await crowd.until(lambda: bool(dead), MINUTES)
        others = [seat for seat in crowd.seats if seat not in dead]
        limit = SILENT + timedelta(seconds=1) + DEFAULTS.ready_floor + timedelta(seconds=5)
        took = await seconds_until(swarm, crowd, lambda: all(2 in commits(seat) for seat in others))
        assert took <= limit.total_seconds()
        await crowd.until(lambda: all(4 in commits(seat) for seat in others), MINUTES)
        assert all(commit["attempt"] <= 1 for seat in others for commit in seat.of("commit"))

    swarm.run(scene())
    crowd.check_equal()


def commits(seat: Seat) -> set[int]:
    return {commit["round"] for commit in seat.of("commit")}


@pytest.mark.failure_mode(21)
def test_a_member_that_lives_and_never_gets_ready_is_left_out_after_one_deadline(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = five(swarm, tmp_path)
    slow, *others = crowd.seats
    slow.trainer.gate = lambda number, step: asyncio.Event() if number >= 1 else None
    times: dict[int, float] = {}

    async def scene() -> None:
        for number in range(7):
            await crowd.until(lambda number=number: number in commits(others[0]), MINUTES)  # type: ignore[misc]
            times[number] = swarm.time

    swarm.run(scene())
    rosters = {commit["round"]: commit["roster"] for commit in others[0].of("commit")}
    assert slow.host.peer_id in rosters[0]
    assert all(slow.host.peer_id not in rosters[number] for number in range(1, 7))
    assert not slow.of("peer.gone") and not [g for s in others for g in s.of("peer.gone")], "it lives"
    deadline = DEFAULTS.ready_floor.total_seconds()
    waits = [times[number] - times[number - 1] for number in range(1, 7)]
    assert all(wait <= deadline + 2 for wait in waits), "nobody waits longer for it than one deadline"
    assert min(waits) <= 4.5, "nor at all in the round after it was dropped from the electorate"
    crowd.check_equal()


@pytest.mark.failure_mode(3)
def test_members_that_reach_nobody_take_no_step_at_all(swarm: Swarm, tmp_path: Path) -> None:
    crowd = five(swarm, tmp_path)

    async def scene() -> None:
        await crowd.until(lambda: all(1 in seat.digests() for seat in crowd.seats), MINUTES)
        for _ in range(3):
            swarm.network.partition(*([seat.host] for seat in crowd.seats))
            await asyncio.sleep(1)
            before = [(sorted(seat.digests()), commits(seat)) for seat in crowd.seats]
            states = [seat.state.params.copy() for seat in crowd.seats]
            await asyncio.sleep(120)
            assert before == [(sorted(seat.digests()), commits(seat)) for seat in crowd.seats]
            for seat, state in zip(crowd.seats, states, strict=True):
                assert (seat.state.params == state).all(), "not even one of its own"
            swarm.network.heal()
            now = rounds_of(crowd.seats)
            await crowd.until(lambda now=now: all(now + 1 in commits(s) for s in crowd.seats), MINUTES)  # type: ignore[misc]

    swarm.run(scene())
    crowd.check_equal()
