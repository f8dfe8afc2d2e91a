"""Workers that are stopped, and signs of life that go on after an error."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from diloco.config import DeadlineSection
from diloco.member.setting import Outcome
from diloco.rounds.values import Lease
from protocol.errors import Code, NodeError
from protocol.testing import Swarm
from tests.diloco.member.fleet import tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd

DEFAULT = {
    name: f"{getattr(DeadlineSection(), name).total_seconds():g} s" for name in ("heartbeat", "silence")
}


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=21, run=None) as made:
        yield made


@pytest.mark.failure_mode(12)
def test_a_member_whose_workers_are_stopped_votes_and_contributes_nothing_until_they_go_on(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=8))
    victim = crowd.seats[1]
    train = victim.trainer.train
    calls: list[int] = []

    async def stopped(lease: Lease, round_number: int, **options: Any) -> Outcome:
        if round_number not in (2, 3):
            return await train(lease, round_number, **options)
        calls.append(round_number)
        await asyncio.sleep(3)
        raise NodeError(Code.TRN_WORKER_STOPPED, "Stopped by a signal: worker 0 (process 1).")

    victim.trainer.train = stopped  # type: ignore[method-assign]
    swarm.run(crowd.finished())
    crowd.check_equal()
    me = victim.host.peer_id
    rosters: dict[int, Any] = {event["round"]: event["roster"] for event in crowd.seats[0].of("commit")}
    without = [number for number, roster in sorted(rosters.items()) if me not in roster]
    assert without in ([2, 3], [2, 3, 4]), (
        "nobody waits in round 4 for who gave nothing twice; what it has goes into 5"
    )
    assert calls == [2, 3], "it does not try again in the same round"
    assert {event["round"] for event in victim.of("vote")} >= {2, 3}
    assert {event["code"] for event in victim.of("train.failed")} == {Code.TRN_WORKER_STOPPED}


def test_signs_of_life_go_on_after_an_error_that_nobody_expected(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=1000, deadline=DEFAULT))
    victim, other = crowd.seats[:2]
    circle = victim.member.outgoing.circle
    broken = False

    def names() -> Any:
        if broken:
            raise RuntimeError("the list of peers is broken")
        return circle()

    victim.member.outgoing.circle = names  # type: ignore[method-assign]

    async def scene() -> None:
        nonlocal broken
        await crowd.until(lambda: 1 in victim.digests(), timedelta(minutes=5))
        broken = True
        await crowd.until(lambda: bool(victim.of("task.failed")), timedelta(seconds=10))
        broken = False
        await crowd.until(lambda: 3 in victim.digests() and 3 in other.digests(), timedelta(minutes=5))
        await asyncio.sleep(60)

    swarm.run(scene())
    assert any(event["task"] == "presence" for event in victim.of("task.failed"))
    assert not any(event["peer"] == victim.host.peer_id for event in other.of("peer.gone"))
