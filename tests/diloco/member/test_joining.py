"""A joiner ends with the donors' bits, whatever the donors do meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diloco.codec import codec
from diloco.member import restoring
from diloco.outer_state import OuterState
from diloco.rounds.events import Reduce
from tests.diloco.member.fleet import Fleet, Post, fleet, heavy_tailed, tiny_genesis


def scribble(post: Post) -> None:
    """Another random initialisation than the run's."""
    params, momentum = post.state.back()
    random = np.random.default_rng(post.number)
    params[:] = random.standard_normal(params.size)
    momentum[:] = random.standard_normal(momentum.size)
    post.state.flip(0)


def still(number: int, round_number: int, state: OuterState) -> np.ndarray:
    """Zero learning rate from round 4 on: the inner weights stay where the outer ones are."""
    inner = state.params.copy()
    if round_number < 4:
        inner -= heavy_tailed(number, round_number, state)
    return state.params - inner


def hold(crowd: Fleet, number: int, gate: asyncio.Event) -> None:
    """Nobody trains a round before the gate opens."""
    for post in crowd.posts:
        post.trainer.gate = lambda round_number, step: gate if round_number >= number else None


async def at_round(crowd: Fleet, number: int) -> None:
    await crowd.until(lambda: all(post.round >= number for post in crowd.living()))


@pytest.mark.failure_mode(6)
async def test_a_fresh_joiner_has_the_donors_parameters_and_momentum(tmp_path: Path) -> None:
    async with fleet(tmp_path, 3, still, tiny_genesis(rounds=7)) as crowd:
        gate = asyncio.Event()
        hold(crowd, 3, gate)
        await at_round(crowd, 3)
        crowd.prepare = scribble
        joiner = await crowd.add()
        await crowd.until(lambda: bool(joiner.of("ready.sent")))
        gate.set()
        await crowd.all_finished()
        crowd.check_equal()
        there = {event["round"]: event for event in crowd.posts[0].of("apply")}
        here = joiner.of("apply")
        assert here and here[-1]["round"] == 7
        for event in here:
            for name in ("digest", "parameters", "momentum"):
                assert event[name] == there[event["round"]][name]
        assert any(joiner.peer in {e.peer for e in c.value.roster} for c in crowd.chain()), "it contributed"
        for certified in crowd.chain()[6:]:
            assert joiner.peer in {entry.peer for entry in certified.value.roster}
            for data in joiner.member._holding.store.read(certified.value):
                assert not codec("int8").decode(data, len(data) - 4 * -(-len(data) // 260)).any(), (
                    "a still round moves nothing"
                )


@pytest.mark.failure_mode(11)
async def test_a_joiner_that_finds_only_another_joiner_waits_for_the_run(tmp_path: Path) -> None:
    async with fleet(tmp_path, 3, heavy_tailed, tiny_genesis(rounds=4)) as crowd:
        await at_round(crowd, 2)
        crowd.cut = lambda a, b: (a.number > 3) != (b.number > 3)
        first, second = await crowd.add(), await crowd.add()
        await at_round_of(crowd, crowd.posts[:3], 4)
        assert first.member.state is None and second.member.state is None, "a fresh peer is never a donor"
        crowd.cut = lambda a, b: False
        await crowd.all_finished()
        crowd.check_equal()


async def at_round_of(crowd: Fleet, posts: list[Post], number: int) -> None:
    await crowd.until(lambda: all(post.round >= number for post in posts))


@pytest.mark.failure_mode(13)
async def test_a_joiner_whose_download_takes_three_rounds_joins_and_delays_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = restoring.fetch
    async with fleet(tmp_path, 3, heavy_tailed, tiny_genesis(rounds=12)) as crowd:
        await at_round(crowd, 2)

        async def slow(*arguments: Any) -> Any:
            until = crowd.posts[0].round + 3
            report = await fetch(*arguments)
            await crowd.until(lambda: crowd.posts[0].round >= min(until, 9))
            return report

        monkeypatch.setattr(restoring, "fetch", slow)
        joiner = await crowd.add()
        await crowd.until(lambda: joiner.member.state is not None)
        monkeypatch.setattr(restoring, "fetch", fetch)
        await crowd.all_finished()
        crowd.check_equal()
        members = {post.peer for post in crowd.posts[:3]}
        for certified in crowd.chain()[1:]:
            assert members <= {entry.peer for entry in certified.value.roster}, "the others lost nothing"
        assert joiner.digests()[12] == crowd.posts[0].digests()[12]


@pytest.mark.failure_mode(17)
async def test_four_joiners_at_once_finish_although_a_donor_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = restoring.fetch
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=8)) as crowd:
        donor = crowd.posts[1]

        async def during(*arguments: Any) -> Any:
            if not donor.killed:
                donor.die()
            return await fetch(*arguments)

        gate = asyncio.Event()
        hold(crowd, 5, gate)
        await at_round(crowd, 5)
        monkeypatch.setattr(restoring, "fetch", during)
        joiners = await asyncio.gather(*(crowd.add() for _ in range(4)))
        await crowd.until(lambda: all(joiner.of("ready.sent") for joiner in joiners))
        gate.set()
        await crowd.all_finished()
        assert donor.killed
        crowd.check_equal()
        assert all(8 in joiner.digests() for joiner in joiners)
        roster = {entry.peer for entry in crowd.chain()[-1].value.roster}
        assert roster == {post.peer for post in crowd.living()}


async def test_a_member_that_missed_more_rounds_than_others_keep_downloads_a_checkpoint(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=10)) as crowd:
        await at_round(crowd, 1)
        victim = crowd.posts[3]
        await victim.kill()
        await at_round(crowd, 8)
        await victim.restart()
        await crowd.all_finished()
        crowd.check_equal()
        assert victim.of("state.downloaded")
        assert victim.digests()[10] == crowd.posts[0].digests()[10]


async def test_who_hears_of_a_round_when_it_is_decided_asks_for_its_bytes_at_once(tmp_path: Path) -> None:
    genesis = tiny_genesis(rounds=4, deadline={"progress": "10 min"})
    async with fleet(tmp_path, 3, heavy_tailed, genesis, begin=False) as crowd:
        late = await crowd.add(seated=False)
        exchange = late.member._exchange
        reduce = exchange.reduce

        async def behind(asked: Reduce) -> None:
            await crowd.until(lambda: any(event["round"] == asked.round for event in late.of("commit")))
            await reduce(asked)

        exchange.reduce = behind  # type: ignore[method-assign]
        crowd.begin()
        await crowd.all_finished()
        crowd.check_equal()
        assert not late.of("reduce.begin") and 4 in late.digests()
