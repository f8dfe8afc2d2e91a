"""What is on disk carries a run over any stop; what is cut off waits."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diloco.member import beginning
from diloco.rounds.leases import spans_of
from diloco.rounds.records import Order
from protocol.envelope import seal
from protocol.errors import Code, NodeError
from tests.diloco.member.fleet import OPERATOR, Post, fleet, heavy_tailed, positions, tiny_genesis


async def test_a_stopped_swarm_agrees_on_the_highest_certificate_and_goes_on(tmp_path: Path) -> None:
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=6)) as crowd:

        def power_cut() -> None:
            for post in crowd.posts:
                post.die()

        for post in crowd.posts:
            post.on("commit", power_cut, round=2)
        await crowd.until(lambda: all(post.killed for post in crowd.posts))
        seen = {e["value"] for post in crowd.posts for e in post.of("commit") if e["round"] == 2}
        assert len(seen) == 1 and any(post.of("commit")[-1]["round"] != 2 for post in crowd.posts)
        await asyncio.gather(*(post.restart() for post in crowd.posts))
        await crowd.all_finished()
        crowd.check_equal()
        assert crowd.chain()[3].digest.hex() in seen
        crowd.check_books()


async def test_a_swarm_stopped_after_its_votes_decides_what_was_voted_for(tmp_path: Path) -> None:
    async with fleet(tmp_path, 3, heavy_tailed, tiny_genesis(rounds=3)) as crowd:

        def power_cut() -> None:
            for post in crowd.posts:
                post.die()

        for post in crowd.posts:
            post.on("vote", power_cut, round=1)
        await crowd.until(lambda: all(post.killed for post in crowd.posts))
        voted = {e["value"] for post in crowd.posts for e in post.of("vote") if e["round"] == 1}
        assert len(voted) == 1
        await asyncio.gather(*(post.restart() for post in crowd.posts))
        await crowd.all_finished()
        crowd.check_equal()
        assert all(3 in post.digests() for post in crowd.posts)
        crowd.check_books()


@pytest.mark.failure_mode(14)
@pytest.mark.parametrize("damage", ["", "flipped", "cut", "empty", "longer"])
async def test_a_member_that_restarts_offers_what_it_had_frozen_and_trains_nothing_twice(
    tmp_path: Path, damage: str
) -> None:
    async with fleet(tmp_path, 3, heavy_tailed, tiny_genesis(rounds=4)) as crowd:
        victim = crowd.posts[2]
        victim.on("contribution.frozen", victim.die, round=1)
        await crowd.until(lambda: victim.killed)
        (begun,) = [event["start"] for event in victim.of("train.begin") if event["round"] == 1]
        path = victim.folder / "contribution.bin"
        data = bytearray(path.read_bytes())
        data[-40] ^= 1
        damaged = {
            "flipped": bytes(data),
            "cut": bytes(data[:-8]),
            "empty": b"",
            "longer": bytes(data) + b"x",
        }
        if damage:
            path.write_bytes(damaged[damage])
        await victim.restart()
        await crowd.all_finished()
        crowd.check_equal()
        crowd.check_books()
        again = [event for event in victim.of("train.begin") if event["start"] == begun]
        assert len(again) == (2 if damage else 1)
        assert len(victim.of("contribution.kept")) == (not damage)
        assert any(e.peer == victim.peer for c in crowd.chain()[2:4] for e in c.value.roster)


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
async def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path: Path, damage: str) -> None:
    async with fleet(tmp_path, 2, heavy_tailed, tiny_genesis(rounds=6)) as crowd:
        await crowd.until(lambda: all(post.state.round >= 5 for post in crowd.posts))
        await asyncio.gather(*(post.kill() for post in crowd.posts))
        for post in crowd.posts:
            newest = max((post.folder / "checkpoints").glob("*.safetensors"))
            data = bytearray(newest.read_bytes())
            data[len(data) // 2] ^= 64
            newest.unlink()
            newest.write_bytes({"flipped": bytes(data), "cut": bytes(data[:-8]), "empty": b""}[damage])
        await asyncio.gather(*(post.restart() for post in crowd.posts))
        await crowd.all_finished()
        crowd.check_equal()
        assert all(post.of("checkpoint.damaged") for post in crowd.posts)
        assert all(6 in post.digests() for post in crowd.posts)


async def test_a_directory_in_place_of_a_checkpoint_is_told_and_stops_nobody(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2, heavy_tailed, tiny_genesis(rounds=8)) as crowd:
        first = crowd.posts[0]
        (first.folder / "checkpoints" / "round-00000006.safetensors").mkdir(parents=True)
        await crowd.until(lambda: all(post.state.round >= 5 for post in crowd.posts))
        await asyncio.gather(*(post.kill() for post in crowd.posts))
        for name in ("round-00000004.safetensors", "round-00000006.safetensors"):
            path = first.folder / "checkpoints" / name
            path.unlink() if path.is_file() else None
            path.mkdir(exist_ok=True)
        await asyncio.gather(*(post.restart() for post in crowd.posts))
        await crowd.all_finished()
        crowd.check_equal()
        assert {event["code"] for event in first.of("checkpoint.damaged")} == {Code.STO_CORRUPT}
        assert {event["code"] for event in first.of("checkpoint.failed")} == {Code.STO_UNWRITABLE}
        assert not first.of("task.failed") and not first.of("offer.failed")


@pytest.mark.failure_mode(32)
async def test_a_voter_that_lost_its_disk_votes_again_once_a_value_lists_its_boot(tmp_path: Path) -> None:
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=6)) as crowd:
        await crowd.until(lambda: all(post.round >= 1 for post in crowd.posts))
        victim = crowd.posts[3]
        await victim.kill()
        shutil.rmtree(victim.folder)
        voted = len(victim.of("vote"))
        await victim.restart()
        await crowd.all_finished()
        crowd.check_equal()
        listed = [c.value.round for c in crowd.chain() if any(b.peer == victim.peer for b in c.value.boots)]
        again = [event["round"] for event in victim.of("vote")[voted:]]
        assert not again or (listed and min(again) > listed[0])
        assert 6 in victim.digests()


@pytest.mark.failure_mode(11)
@pytest.mark.failure_mode(12)
async def test_a_member_cut_off_pauses_commits_nothing_and_follows_after_healing(tmp_path: Path) -> None:
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=8)) as crowd:
        alone = crowd.posts[2]
        others = [post for post in crowd.posts if post is not alone]
        under_way = 0

        def told(post: Post) -> set[str]:
            return {event["peer"] for event in post.of("peer.gone")}

        def cut() -> None:
            nonlocal under_way
            crowd.cut = lambda a, b: alone in (a, b)
            under_way = max(post.round for post in crowd.posts)

        crowd.posts[0].on("commit", cut, round=1)
        await crowd.until(lambda: 0 < under_way <= min(post.round for post in others) - 3)
        await crowd.until(lambda: all(alone.peer in told(post) for post in others))
        assert alone.round <= under_way + 1, "it decides nothing beyond what had reached it"
        leased = [c.leases[alone.peer] for c in alone.member.ledger.after(0, -2) if alone.peer in c.leases]
        trained = {p for _, start, count in alone.trained for p in range(start, start + count)}
        assert trained <= positions(span for lease in leased for span in spans_of(lease)), "it paused"
        crowd.cut = lambda a, b: False
        await crowd.all_finished()
        crowd.check_equal()
        crowd.check_books()
        assert 8 in alone.digests()


@pytest.mark.failure_mode(11)
async def test_two_halves_never_both_go_on(tmp_path: Path) -> None:
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=4)) as crowd:
        left = crowd.posts[:2]
        await crowd.until(lambda: all(post.round >= 2 for post in crowd.posts))  # one chain on both sides
        crowd.cut = lambda a, b: (a in left) != (b in left)
        await crowd.until(lambda: sum(post.round >= 3 for post in crowd.posts) >= 2)
        ahead = [post for post in crowd.posts if post.round >= 3]
        assert ahead in (left, crowd.posts[2:]), "one side goes on, the other waits"
        crowd.cut = lambda a, b: False
        await crowd.all_finished()
        crowd.check_equal()


async def test_a_member_whose_state_went_wrong_takes_the_others(tmp_path: Path) -> None:
    def spoil(post: Post) -> None:
        params, momentum = post.state.back()
        params[:] = np.float32(7)
        momentum[:] = 0
        post.state.flip(post.state.round)
        post.member._outer._applied = post.member._outer._applying.describe()

    async with fleet(tmp_path, 3, heavy_tailed, tiny_genesis(rounds=5)) as crowd:
        victim = crowd.posts[1]
        victim.on("train.begin", lambda: spoil(victim), round=2)
        await crowd.all_finished()
        assert victim.of("diverged")
        assert victim.digests()[5] == crowd.posts[0].digests()[5]


async def test_a_member_that_cannot_apply_a_round_while_more_are_decided_follows(tmp_path: Path) -> None:
    """Cut off, it learns of several rounds at once, when it still believes all others dead."""
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=8)) as crowd:
        late = crowd.posts[2]
        await crowd.until(lambda: late.round >= 2)
        holders = late.member._outer._holders
        late.member._outer._holders = lambda number: []  # nobody to ask
        crowd.cut = lambda a, b: late in (a, b)
        others = [post for post in crowd.posts if post is not late]
        await crowd.until(lambda: all(post.round >= 5 for post in others))
        crowd.cut = lambda a, b: False
        await crowd.until(lambda: bool(late.of("apply.waits")) and late.round >= 5)
        late.member._outer._holders = holders
        await crowd.all_finished()
        crowd.check_equal()


async def test_a_banned_member_that_lacks_bytes_ends_and_does_not_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginning, "_BAN_PATIENCE", 1.0)
    async with fleet(tmp_path, 3, heavy_tailed, tiny_genesis(rounds=1000)) as crowd:
        banned = crowd.posts[2]
        await crowd.until(lambda: all(post.round >= 1 for post in crowd.posts))
        order = Order(number=1, kind="ban", peer=banned.peer)
        crowd.posts[0].member.give_order(seal(OPERATOR, crowd.genesis.run_id, order))
        await crowd.until(lambda: bool(banned.of("banned")))
        await banned.kill()
        for folder in ("reduced", "checkpoints"):
            shutil.rmtree(banned.folder / folder)
        crowd.knows = lambda a, b: banned not in (a, b)  # members answer it nothing any more
        await banned.restart()
        assert banned.task is not None
        with pytest.raises(NodeError) as refused:
            async with asyncio.timeout(60):
                await banned.task
        assert refused.value.code == Code.RND_BANNED


async def test_a_banned_member_whose_vote_was_needed_leaves_the_others_the_decision(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2, heavy_tailed, tiny_genesis(rounds=6)) as crowd:
        stays, banned = crowd.posts
        await crowd.until(lambda: all(post.round >= 1 for post in crowd.posts))
        muted = False

        def mute(kind: str, fields: dict[str, Any]) -> None:
            nonlocal muted
            muted = kind == "vote" or (muted and kind != "commit")

        banned.hooks.append(mute)
        crowd.cut = lambda here, there: here is banned and muted  # no vote of it is heard
        order = Order(number=1, kind="ban", peer=banned.peer)
        stays.member.give_order(seal(OPERATOR, crowd.genesis.run_id, order))
        await banned.member.banned.wait()
        await banned.kill()
        await crowd.all_finished()
        assert banned.peer in crowd.chain()[-1].value.banned
