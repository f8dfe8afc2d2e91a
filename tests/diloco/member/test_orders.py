"""Orders that change or hold a run, carried out by whole members in virtual time."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from diloco.rounds.records import Order
from protocol.envelope import seal
from protocol.testing import Swarm
from tests.diloco.member.fleet import OPERATOR, tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd

LONG = timedelta(minutes=10)


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=3, run=None) as made:
        yield made


def order(crowd: Crowd, number: int, kind: str, **more: str) -> None:
    sealed = seal(OPERATOR, crowd.genesis.run_id, Order(number=number, kind=kind, **more))
    crowd.seats[0].member.give_order(sealed)


def test_a_paused_run_trains_nothing_until_it_is_resumed(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=5))

    async def scene() -> None:
        await crowd.until(lambda: 1 in crowd.seats[0].digests(), LONG)
        order(crowd, 1, "pause")
        await crowd.until(
            lambda: all(seat.of("node.phase")[-1]["phase"] == "paused" for seat in crowd.seats), LONG
        )
        paused = [dict(seat.digests()) for seat in crowd.seats]
        begun = [len(seat.of("train.begin")) for seat in crowd.seats]
        await asyncio.sleep(600)
        assert [seat.digests() for seat in crowd.seats] == paused
        assert [len(seat.of("train.begin")) for seat in crowd.seats] == begun
        order(crowd, 2, "resume")
        await crowd.finished()

    swarm.run(scene())
    crowd.check_equal()
    rosters = [len(commit["roster"]) for commit in crowd.seats[1].of("commit")]
    assert rosters.count(0) == 1 and set(rosters) == {0, 3}


def test_a_changed_rate_acts_on_all_and_on_who_replays_the_round(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=7))
    first, _, third = crowd.seats

    async def scene() -> None:
        await crowd.until(lambda: 1 in first.digests(), LONG)
        order(crowd, 1, "parameter", name="outer.lr", value="0")
        order(crowd, 2, "parameter", name="inner.lr", value="0.25")
        await crowd.until(lambda: 5 in first.digests() and 5 in third.digests(), LONG)
        third.host.kill()
        third.host.boot_up()
        third.build()
        third.host.spawn(third.member.run())
        await crowd.finished()

    swarm.run(scene())
    crowd.check_equal()
    taken = next(c.value for c in first.member.ledger.after(-1, -2) if c.value.orders)
    states = {fields["round"]: fields["parameters"] for fields in first.of("apply")}
    after = taken.round + 1
    assert states[after] != states[after - 1], "not before the next round"
    assert len({states[number] for number in range(after, 8)}) == 1, "a rate of zero moves nothing"
    rates = first.trainer.rates
    assert rates[taken.round] == crowd.genesis.sections.inner.lr and rates[after] == 0.25
