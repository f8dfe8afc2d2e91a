"""Nodes behind real routers: network namespaces, MASQUERADE, connection tracking."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocol.paths.lab import Lab, missing

LACK = missing()
pytestmark = pytest.mark.skipif(bool(LACK), reason=LACK or "a lab can be built")

MEGABYTE = 1_000_000


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    made = Lab(tmp_path)
    yield made
    await made.close()


@pytest.mark.parametrize(
    "hard", [False, True], ids=["whose router keeps ports", "whose router gives any port"]
)
async def test_two_nodes_that_can_only_dial_out_speak_with_each_other(lab: Lab, hard: bool) -> None:
    relay, one, other = lab.public("relay"), lab.hidden("one"), lab.hidden("other", hard=hard)
    way = "relayed" if hard else "punched"
    told = await relay.start(relay=1 << 30)
    assert told["reach"] == "direct" and told["host"] == relay.address
    ends = await asyncio.gather(one.start(relay), other.start(relay))
    for end in ends:
        assert end["reach"] == "tunnel", "they learn that nobody can call them back"
        assert relay.peer in end["sentence"] and end["seen"] in end["sentence"]
        assert any("/p2p-circuit/" in address for address in end["multiaddrs"])
    await asyncio.gather(
        one.do("find", peer=other.peer, within=30), other.do("find", peer=one.peer, within=30)
    )
    for asker, peer in ((one, other), (other, one)):
        answer = await asker.do("ping", peer=peer.peer, text="hello", within=30)
        assert answer == {"text": f"hello from {asker.peer}", "way": way}
        got = await asker.do("pull", peer=peer.peer, count=5 * MEGABYTE)
        assert got["count"] == 5 * MEGABYTE
    record = await one.do("record", peer=other.peer)
    assert record["reach"] == "tunnel" and record["host"] == other.address
    assert "relay" in (await one.do("record", peer=relay.peer))["roles"]
    paths = [event for event in await one.do("events") if event["kind"] == "peer.path"]
    assert {event["plane"]: event["path"] for event in paths} == {"control": way, "bulk": way}
    # the relay reaches them by the connection that they opened, and they reach it directly
    for asker, peer in ((relay, one), (one, relay)):
        await asker.do("find", peer=peer.peer, within=30)
        answer = await asker.do("ping", peer=peer.peer, text="hello", within=30)
        assert answer["way"] == "direct"


@pytest.mark.failure_mode(24)
@pytest.mark.parametrize(
    "megabytes", [10, pytest.param(40, marks=pytest.mark.soak)], ids=lambda count: f"{count} MB"
)
async def test_at_ten_megabits_a_long_transfer_starves_no_heartbeat(tmp_path: Path, megabytes: int) -> None:
    """Directly and through a relay: the same seconds serve both. Ten megabytes take longer than the limit, too."""
    least = megabytes * 0.8  # seconds, at a megabyte and a quarter in each
    direct, relayed = Lab(tmp_path / "direct"), Lab(tmp_path / "relayed")
    try:
        near, far = direct.public("near"), direct.public("far", rate="10mbit")
        relay, one, other = (
            relayed.public("relay"),
            relayed.hidden("one", rate="10mbit"),
            relayed.hidden("other", hard=True),
        )
        await asyncio.gather(near.start(), relay.start(relay=1 << 30))
        await asyncio.gather(far.start(near), one.start(relay), other.start(relay))

        async def transfer_with_heartbeats(puller: object, giver: object, way: str) -> None:
            for asker, peer in ((puller, giver), (giver, puller)):
                await asker.do("find", peer=peer.peer, within=30)
                answer = await asker.do("ping", peer=peer.peer, text="first", within=30)
                assert answer["way"] == way
            pulled = asyncio.create_task(puller.do("pull", peer=giver.peer, count=megabytes * MEGABYTE))
            beats = await asyncio.gather(
                *(
                    asker.do("beat", peer=peer.peer, seconds=least + 2, limit=5)
                    for asker, peer in ((puller, giver), (giver, puller))
                )
            )
            got = await pulled
            print(way, got, beats)
            assert got["count"] == megabytes * MEGABYTE
            assert got["seconds"] > 0.95 * least, "the link was the narrow place"
            assert [beat["lost"] for beat in beats] == [0, 0]

        await asyncio.gather(
            transfer_with_heartbeats(near, far, "direct"), transfer_with_heartbeats(other, one, "relayed")
        )
    finally:
        await asyncio.gather(direct.close(), relayed.close())
