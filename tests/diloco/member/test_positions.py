"""Every sample position is in committed work once, whoever dies, is late or leaves."""

import asyncio
from pathlib import Path

import pytest

from tests.diloco.member.fleet import Fleet, Post, fleet, heavy_tailed, tiny_genesis


@pytest.mark.failure_mode(14)
async def test_five_kills_and_rejoins_leave_no_gap_and_no_repeat(tmp_path: Path) -> None:
    deaths = [(1, "train.step"), (2, "ready.sent"), (3, "reduce.progress"), (4, "vote"), (5, "commit")]
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=9)) as crowd:
        for number, kind in deaths:
            victim = crowd.posts[number % 4]
            victim.on(kind, victim.die, round=lambda r, number=number: r >= number)
            await crowd.until(lambda victim=victim: victim.killed)
            await crowd.until(lambda number=number: all(p.round > number for p in crowd.living()))
            await victim.restart()
        await crowd.all_finished(120)
        crowd.check_equal()
        taken = crowd.check_books()
        last = crowd.chain()[-1].value
        assert taken == set(range(last.cursor)) - {
            p for span in (*last.leases, *last.returned) for p in range(span.start, span.start + span.count)
        }
        assert len(taken) >= 9 * 3 * 8, "at least three members' work is in every round"
        assert all(9 in post.digests() for post in crowd.posts)


@pytest.mark.failure_mode(21)
async def test_a_member_that_never_gets_ready_is_left_out_and_then_keeps_its_steps(tmp_path: Path) -> None:
    gate = asyncio.Event()
    genesis = tiny_genesis(rounds=4, deadline={"ready_floor": "400 ms"})
    async with fleet(tmp_path, 4, heavy_tailed, genesis, begin=False) as crowd:
        late = crowd.posts[2]
        late.trainer.gate = lambda round_number, step: gate if step >= 2 else None
        crowd.begin(lambda value: value.tie_breaker != late.peer)
        others = [post for post in crowd.posts if post is not late]
        await crowd.until(lambda: all(post.round == 1 for post in others))
        assert late.peer not in {entry.peer for entry in crowd.chain()[1].value.roster}
        gate.set()
        await crowd.all_finished()
        crowd.check_equal()
        crowd.check_books()
        first = min(start for _, start, _ in late.trained)
        assert sum(count for _, start, count in late.trained if first <= start < first + 8) == 8, (
            "its first lease was trained on once, without a break"
        )
        kept = next(c for c in crowd.chain()[2:] if late.peer in {e.peer for e in c.value.roster})
        assert kept.value.round <= 2


async def test_a_drainer_gives_what_it_has_and_returns_the_rest(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=5)) as crowd:
        leaver = crowd.posts[1]
        held = {}

        def hold(post: Post) -> None:
            held["lease"] = post.member.state.lease  # type: ignore[union-attr]
            post.trainer.gate = lambda round_number, step: gate if step >= 2 else None

        leaver.on("commit", lambda: hold(leaver), round=0)
        leaver.on("train.step", lambda: asyncio.ensure_future(leaver.member.drain()), round=1, step=1)
        await crowd.until(lambda: leaver.member.left.is_set())
        await leaver.kill()
        await crowd.all_finished()
        crowd.check_equal()
        taken = crowd.check_books()
        value = next(c.value for c in crowd.chain() if leaver.peer in c.value.left)
        entry = next(entry for entry in value.roster if entry.peer == leaver.peer)
        assert 0 < entry.samples < 8, "the lease was cut short and what was done is in the round"
        lease = next(lease for lease in crowd.chain()[1].value.leases if lease.peer == leaver.peer)
        rest = set(range(lease.start + entry.samples, lease.start + 8))
        assert rest <= taken, "others trained on what it returned"
        assert leaver.of("goodbye")
        assert all(e.peer != leaver.peer for e in crowd.chain()[-1].value.electorate)


@pytest.mark.failure_mode(39)
async def test_all_members_may_drain_in_the_same_moment_and_the_run_goes_on_later(tmp_path: Path) -> None:
    async with fleet(tmp_path, 3, heavy_tailed, tiny_genesis(rounds=5)) as crowd:
        await crowd.until(lambda: all(post.round >= 2 for post in crowd.posts))
        await asyncio.gather(*(post.member.drain() for post in crowd.posts))
        assert not any(post.of("drain.cut") for post in crowd.posts), "nobody had to be cut off"
        await asyncio.gather(*(post.kill() for post in crowd.posts))
        await asyncio.gather(*(post.restart() for post in crowd.posts))
        await crowd.all_finished()
        crowd.check_equal()
        crowd.check_books()


def roster(crowd: Fleet, number: int) -> set[str]:
    return {entry.peer for entry in crowd.chain()[number + 1].value.roster}
