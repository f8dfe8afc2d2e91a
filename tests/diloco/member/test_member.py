"""Members over real gRPC agree bit for bit, whoever joins, leaves or dies."""

from pathlib import Path

import numpy as np
import pytest

from diloco.outer_state import OuterState
from tests.diloco.member.fleet import fleet


def heavy_tailed(number: int, round_number: int, state: OuterState) -> np.ndarray:
    random = np.random.default_rng((number, round_number))
    return (random.standard_t(3, state.layout.size) * 1e-3).astype(np.float32)


@pytest.mark.failure_mode(1)
@pytest.mark.parametrize("count", [1, 2, 5])
async def test_all_members_hold_equal_bits_after_every_round(tmp_path: Path, count: int) -> None:
    async with fleet(tmp_path, count, heavy_tailed) as crowd:
        await crowd.all_finished()
        crowd.check_equal()
        assert all(len(post.digests()) == 5 for post in crowd.posts)
        assert all(
            commit["roster"] == sorted(p.peer for p in crowd.posts) for commit in crowd.posts[0].of("commit")
        )
