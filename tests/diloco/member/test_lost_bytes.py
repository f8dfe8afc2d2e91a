"""A value that was voted for is decided although every byte it names is lost: the contributions are frozen."""

import asyncio
import shutil
from pathlib import Path

from diloco.rounds.values import value_digest
from tests.diloco.member.fleet import Fleet, Post, fleet, heavy_tailed, tiny_genesis


async def voted_and_lost(crowd: Fleet) -> tuple[Post, bytes]:
    """All go down right after the first follower's vote, and come up without reduced bytes."""
    voters: list[Post] = []

    def power_cut(post: Post) -> None:
        state = post.member.state
        if voters or (state is not None and state.leader(state.attempt) == post.peer):
            return
        voters.append(post)
        for each in crowd.posts:
            each.die()

    for post in crowd.posts:
        post.on("vote", lambda post=post: power_cut(post), round=0)  # type: ignore[misc]
    crowd.begin()
    await crowd.until(lambda: all(post.killed for post in crowd.posts))
    await asyncio.gather(*crowd.dying)
    crowd.started = False
    for post in crowd.posts:
        await post.restart()
    for post in crowd.posts:  # by now no thread of the killed ones writes any more
        for path in (post.folder / "reduced").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    voter = voters[0]
    promise = voter.member.ledger.promise()
    assert promise is not None and promise.round == 0 and promise.voted_attempt
    crowd.started = True
    return voter, value_digest(promise.voted_value)


async def test_lost_bytes_are_reduced_again_from_the_same_contributions(tmp_path: Path) -> None:
    genesis = tiny_genesis(rounds=2, deadline={"attempt": "3 s", "progress": "1 s"})
    async with fleet(tmp_path, 5, heavy_tailed, genesis, begin=False) as crowd:
        _, voted = await voted_and_lost(crowd)
        for post in crowd.posts:
            post.run()
        await crowd.all_finished(90)
        crowd.check_equal()
        crowd.check_books()
        assert crowd.chain()[1].digest == voted, "the value that was voted for is the one that is decided"
        rebuilt = [fields for post in crowd.posts for fields in post.of("bytes.rebuilt")]
        assert rebuilt and any(fields["missing"] == fields["rebuilt"] > 0 for fields in rebuilt)


async def test_where_a_contribution_is_lost_too_the_members_say_so_and_wait_for_who_has_it(
    tmp_path: Path,
) -> None:
    genesis = tiny_genesis(rounds=2, deadline={"attempt": "3 s", "progress": "1 s"})
    async with fleet(tmp_path, 5, heavy_tailed, genesis, begin=False) as crowd:
        voter, voted = await voted_and_lost(crowd)
        others = [post for post in crowd.posts if post is not voter]
        for post in others:
            post.run()

        def says_so(post: Post) -> bool:
            return any(fields["reason"] == "bytes-lost" for fields in post.of("node.phase"))

        await crowd.until(lambda: all(map(says_so, others)), 90)
        assert all(post.round == 0 for post in others)
        voter.run()
        await crowd.all_finished(90)
        crowd.check_equal()
        assert crowd.chain()[1].digest == voted
