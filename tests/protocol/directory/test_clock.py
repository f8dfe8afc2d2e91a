"""Clocks of directories: they go by the members' median, and a machine that is an hour off takes part."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

from protocol.directory import Directory
from protocol.directory.records import PeerRecord
from protocol.envelope import Sealed
from protocol.identity import Identity
from tests.protocol.directory.conftest import Swarm
from tests.protocol.directory.scene import RUN, record

HOUR = timedelta(hours=1).total_seconds()


async def seen_by(directory: Directory, count: int) -> set[str]:
    async with asyncio.timeout(60):
        while len(found := await directory.records("members")) < count:
            await asyncio.sleep(0.2)
    return {each.sender for each in found}


async def test_a_node_whose_clock_is_an_hour_off_sees_and_is_seen_with_a_warning(swarm: Swarm) -> None:
    def clock() -> float:
        return time.time() + HOUR

    right = await swarm.start()
    wrong = await swarm.start(bootstrap=right.multiaddrs, clock=clock)
    other = await swarm.start(bootstrap=right.multiaddrs)
    assert abs(wrong.now() - time.time()) < 60
    assert wrong.clock_warning is not None and "60 min" in wrong.clock_warning
    assert right.clock_warning is None and other.clock_warning is None
    everybody = {swarm.identities[each].peer_id for each in (right, wrong, other)}
    for each in (right, wrong, other):
        await each.publish(made(swarm.identities[each], each.now), shelf="members")
    for each in (right, wrong, other):
        assert await seen_by(each, 3) == everybody
    assert abs(right.now() - time.time()) < 60  # the right ones stay where they are


async def test_a_record_from_before_the_clock_was_corrected_bars_no_later_one(swarm: Swarm) -> None:
    """It was issued an hour ahead, so that no peer took it: the node would be unknown for an hour."""
    right = await swarm.start()
    wrong = await swarm.start(bootstrap=right.multiaddrs)
    me = swarm.identities[wrong]
    wrong._published["members"] = made(me, lambda: time.time() + HOUR)
    await wrong.publish(made(me, wrong.now), shelf="members")
    assert me.peer_id in await seen_by(right, 1)


def made(identity: Identity, now: Callable[[], float]) -> Sealed[PeerRecord]:
    return record(identity, run=RUN, now=now())
