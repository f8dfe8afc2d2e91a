"""Random faults on whole members, unchanged, with their disks and transfers, in virtual time."""

import asyncio
import random
from datetime import timedelta
from pathlib import Path

import pytest

from protocol.testing import Conditions, Swarm
from tests.diloco.member.fleet import tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd, Seat

ROUNDS = 5


async def strike(crowd: Crowd, rng: random.Random) -> None:
    """One fault, and its end."""
    seat: Seat = rng.choice(crowd.seats)
    match rng.choice(("kill", "pause", "partition")):
        case "kill":
            seat.host.kill(silently=rng.random() < 0.5)
            await asyncio.sleep(rng.uniform(1, 8))
            seat.host.boot_up()
            seat.build()
            seat.host.spawn(seat.member.run())
        case "pause":
            seat.host.pause()
            await asyncio.sleep(rng.uniform(1, 12))
            seat.host.resume()
        case _:
            others = [other.host for other in crowd.seats if other is not seat]
            crowd.swarm.network.partition([seat.host], others)
            await asyncio.sleep(rng.uniform(1, 12))
            crowd.swarm.network.heal()


@pytest.mark.failure_mode(11)
@pytest.mark.parametrize("seed", range(3))
def test_whole_members_agree_through_random_faults(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    rough = Conditions(
        delay=timedelta(milliseconds=20),
        jitter=timedelta(milliseconds=30),
        loss=0.02,
        duplication=0.02,
        reordering=0.1,
    )
    with Swarm(seed=seed, keyed=True, run=None, conditions=rough) as swarm:
        operator = swarm.identity(0)
        genesis = tiny_genesis(rounds=ROUNDS).model_copy(update={"operator_root": operator.peer_id})
        crowd = Crowd(swarm, tmp_path, genesis, count=rng.choice((3, 4)), operator=operator)

        async def scene() -> None:
            for _ in range(3):
                await asyncio.sleep(rng.uniform(1, 8))
                await strike(crowd, rng)
            await crowd.finished(timedelta(minutes=30))

        swarm.run(scene())
        crowd.check_equal()
        assert all(ROUNDS in seat.digests() for seat in crowd.seats)
