import asyncio
import os
import signal
import time
from datetime import timedelta

import pytest

from protocol.directory import PeerRecord
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.units import Address
from tests.protocol.directory.conftest import Swarm
from tests.protocol.directory.scene import RUN, Admission, admission, record


def peers(records: tuple[Sealed[PeerRecord], ...]) -> set[str]:
    return {sealed.sender for sealed in records}


async def test_peers_in_a_chain_find_each_other(swarm: Swarm) -> None:
    nodes = await swarm.chain(3)
    for node in nodes:
        identity = swarm.identities[node]
        await node.publish(record(identity, multiaddrs=node.multiaddrs), shelf="newcomers")
    everyone = {identity.peer_id for identity in swarm.identities.values()}
    for node in nodes:
        assert peers(await node.records("newcomers")) == everyone
        assert node.multiaddrs[0].endswith(f"/p2p/{swarm.identities[node].peer_id}")
    assert await nodes[0].records("members") == ()


async def test_a_later_record_replaces_an_earlier_one_and_can_be_withdrawn(swarm: Swarm) -> None:
    first, second = await swarm.chain(2)
    me = swarm.identities[first]
    other = record(swarm.identities[second])
    before, after = record(me, round=1, lifetime=30), record(me, round=2, lifetime=70)
    await first.publish(before, shelf="newcomers")
    await second.publish(other, shelf="newcomers")
    await first.publish(after, shelf="newcomers", lifetime=timedelta(seconds=70))
    assert await second.records("newcomers") == (after, other), "the one that expires last comes first"
    with pytest.raises(NodeError, match="expire later") as caught:
        await first.publish(before, shelf="newcomers")
    assert caught.value.code is Code.DIR_RECORD
    await first.withdraw()
    assert await second.records("newcomers") == await first.records("newcomers") == (other,)


async def test_expired_records_are_told_apart_by_the_reader(swarm: Swarm) -> None:
    skew = [0.0]
    node = await swarm.start(clock=lambda: time.time() + skew[0])
    await node.publish(record(swarm.identities[node], lifetime=60), shelf="newcomers")
    skew[0] = 100.0
    assert await node.records("newcomers", tolerance=timedelta(0)) == ()
    assert len(await node.records("newcomers")) == 1, "a clock that is a little off hides nobody"
    skew[0] = 1000.0
    assert await node.records("newcomers") == ()


async def test_only_those_whom_the_operator_admitted_are_members(swarm: Swarm) -> None:
    nodes = await swarm.chain(3)
    operator = Identity.ephemeral()
    admitted, stranger = (swarm.identities[node] for node in nodes[:2])
    await nodes[2].set_operator(operator.public_key, Admission)
    await nodes[0].publish(
        record(admitted, run=RUN, admission=admission(operator, admitted)), shelf="members"
    )
    await nodes[1].publish(
        record(stranger, run=RUN, admission=admission(stranger, stranger)), shelf="members"
    )
    assert peers(await nodes[2].records("members")) == {admitted.peer_id}
    assert peers(await nodes[1].records("members")) == {admitted.peer_id, stranger.peer_id}
    await nodes[1].set_operator(operator.public_key, Admission)
    assert peers(await nodes[1].records("members")) == {admitted.peer_id}


async def test_no_single_death_loses_a_record(swarm: Swarm) -> None:
    nodes = await swarm.chain(4)
    for node in nodes:
        await node.publish(record(swarm.identities[node]), shelf="newcomers")
    everyone = {swarm.identities[node].peer_id for node in nodes}
    while len(nodes) > 1:
        for pid in nodes.pop(0).pids:
            os.kill(pid, signal.SIGKILL)
        for node in nodes:
            assert peers(await node.records("newcomers")) == everyone


async def test_a_founder_that_starts_again_alone_is_found_by_the_others(swarm: Swarm) -> None:
    founder, other = await swarm.chain(2)
    me = swarm.identities[founder]
    await founder.publish(record(me, multiaddrs=founder.multiaddrs), shelf="newcomers")
    await other.publish(record(swarm.identities[other]), shelf="newcomers")
    port = int(founder.multiaddrs[0].split("/")[4])
    await founder.stop()
    again = await swarm.start(identity=me, listen=Address("127.0.0.1", port))
    await again.publish(record(me, round=7, lifetime=90), shelf="newcomers")
    async with asyncio.timeout(30):
        while swarm.identities[other].peer_id not in peers(await again.records("newcomers")):
            await asyncio.sleep(0.2)  # the others look for lost peers every few seconds
    seen = {sealed.sender: sealed.message.round for sealed in await other.records("newcomers")}
    assert seen[me.peer_id] == 7
