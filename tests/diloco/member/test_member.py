"""Members over real gRPC agree bit for bit."""

from pathlib import Path

import numpy as np
import pytest

from diloco.member.messages import Heartbeat
from diloco.rounds.events import Arrived
from protocol.envelope import seal
from tests.diloco.member.fleet import fleet, heavy_tailed, tiny_genesis


@pytest.mark.failure_mode(1)
@pytest.mark.parametrize("count", [2, 3, 8])
async def test_heavy_tailed_updates_leave_equal_bits_on_all_members_over_twenty_rounds(
    tmp_path: Path, count: int
) -> None:
    genesis = tiny_genesis(rounds=20, round={"chunk": 1024})
    async with fleet(tmp_path, count, heavy_tailed, genesis, step=0.0) as crowd:
        await crowd.all_finished(120)
        crowd.check_equal()
        assert all(len(post.digests()) == 21 for post in crowd.posts)
        assert len(set(crowd.posts[0].digests().values())) == 21, "every round changed the state"
        crowd.check_books()


@pytest.mark.failure_mode(1)
async def test_a_run_of_one_member_gets_its_own_update_back(tmp_path: Path) -> None:
    genesis = tiny_genesis(rounds=3, outer={"lr": 1.0, "momentum": 0.0}, round={"codec": "fp32"})
    async with fleet(tmp_path, 1, heavy_tailed, genesis) as crowd:
        await crowd.all_finished()
        (post,) = crowd.posts
        for number in range(3):
            gradient = heavy_tailed(1, number, post.state)
            assert np.array_equal(post.paths[number + 1], post.paths[number] - gradient)


async def test_a_statement_on_which_the_machine_fails_is_dropped_and_the_member_goes_on(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, 2, heavy_tailed, tiny_genesis(rounds=3)) as crowd:
        one, two = crowd.posts
        await crowd.until(lambda: one.round >= 1)
        strange = Heartbeat(epoch=0, round=one.round, phase="no statement at all")
        one.member.post(Arrived(seal(two.identity, crowd.genesis.run_id, strange)))  # type: ignore[arg-type]
        await crowd.all_finished()
        crowd.check_equal()
        (failure,) = one.of("task.failed")
        assert two.peer in failure["task"]
