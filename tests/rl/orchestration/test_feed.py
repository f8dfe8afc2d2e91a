"""The feed of a trainer: bounded waits with a reason, and groups in position order."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from rl.orchestration.books import lease_of
from rl.orchestration.feed import Feed
from tests.rl.orchestration.bench import Bench
from tests.rl.orchestration.world import next_value
from tests.rl.rollouts.making import TOM

LONG = timedelta(hours=1)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.close()


def lease(bench: Bench):  # type: ignore[no-untyped-def]
    return lease_of(bench.value, TOM.peer_id)


async def test_a_step_comes_when_its_groups_are_accepted_and_in_position_order(bench: Bench) -> None:
    feed = Feed(bench.desk, bench.emit)
    step = asyncio.ensure_future(feed.next(lease(bench), 0, done=0, size=4, patience=LONG))
    waiting = await bench.until("rollouts.waiting")
    assert waiting["reason"] == "no-workers" and "0 of 4 groups" in waiting["sentence"]
    await bench.make()
    assert (await bench.until("rollouts.waiting", 2))["reason"] == "generating"
    await bench.make()
    portion = await step
    assert portion is not None
    assert [group.position for group in portion.groups] == [0, 1, 2, 3]
    assert (portion.consumed, dict(portion.empties)) == (4, {})
    assert feed.waiting is None


@pytest.mark.failure_mode(48)
async def test_when_nobody_works_the_wait_ends_with_a_reason(bench: Bench) -> None:
    feed = Feed(bench.desk, bench.emit)
    assert await feed.next(lease(bench), 0, done=0, size=4, patience=timedelta(0)) is None
    (said,) = bench.of("rollouts.timeout")
    assert said["reason"] == "no-workers"


@pytest.mark.failure_mode(47)
async def test_a_lease_of_filtered_groups_ends_at_once_and_says_why(bench: Bench) -> None:
    for _ in range(2):
        await bench.make((1.0, 1.0))
    portion = await Feed(bench.desk, bench.emit).next(lease(bench), 0, done=0, size=2, patience=LONG)
    assert portion is not None and not portion.groups
    assert (portion.consumed, dict(portion.empties)) == (4, {"range": 4})
    assert bench.of("rollouts.waiting")[-1]["reason"] == "all-filtered"


async def test_whoever_stops_it_does_not_wait_for_rollouts(bench: Bench) -> None:
    feed = Feed(bench.desk, bench.emit)
    step = asyncio.ensure_future(feed.next(lease(bench), 0, done=0, size=4, patience=LONG))
    await bench.until("rollouts.waiting")
    feed.stop()
    assert await step is None


async def test_a_wait_ends_with_its_round(bench: Bench) -> None:
    feed = Feed(bench.desk, bench.emit)
    step = asyncio.ensure_future(feed.next(lease(bench), 0, done=0, size=4, patience=LONG))
    await bench.until("rollouts.waiting")
    bench.value = next_value(bench.value, {}, (TOM.peer_id,), ())
    bench.desk.certified(bench.value)
    assert await step is None


async def test_a_round_that_the_desk_does_not_know_yet_is_waited_for(bench: Bench) -> None:
    for _ in range(2):
        await bench.make()
    feed = Feed(bench.desk, bench.emit)
    step = asyncio.ensure_future(feed.next(lease(bench), 1, done=0, size=4, patience=LONG))
    await asyncio.sleep(0)
    assert not step.done()
    bench.value = next_value(bench.value, {}, (TOM.peer_id,), ())
    bench.desk.certified(bench.value)
    portion = await step
    assert portion is not None and len(portion.groups) == 4


async def test_a_file_that_cannot_be_read_is_made_again_while_the_step_waits(bench: Bench) -> None:
    first = await bench.make()
    await bench.make()
    path = bench.folder.path(first)
    path.write_bytes(path.read_bytes()[:-1])
    feed = Feed(bench.desk, bench.emit)
    step = asyncio.ensure_future(feed.next(lease(bench), 0, done=0, size=4, patience=LONG))
    await bench.until("rollouts.waiting")
    assert first.hex() not in bench.desk.state.kept.files
    await bench.make()
    portion = await step
    assert portion is not None and [group.position for group in portion.groups] == [0, 1, 2, 3]
