"""What the members' update is when one of them sends far more than the others: over real gRPC, bit for bit the same."""

from pathlib import Path

import numpy as np
import pytest

from diloco.outer_state import OuterState
from tests.diloco.member.fleet import fleet, tiny_genesis

FIRST_STEP = 0.7 * 1.9  # of the outer step, from a momentum of zero


def one_shouts(number: int, round_number: int, state: OuterState) -> np.ndarray:
    return np.full(state.layout.size, 1.0 if number == 2 else 0.01, np.float32)


async def moved(tmp_path: Path, members: int, aggregation: str) -> np.ndarray:
    genesis = tiny_genesis(rounds=1, round={"aggregation": aggregation})
    async with fleet(tmp_path, members, one_shouts, genesis) as crowd:
        await crowd.all_finished()
        crowd.check_equal()
        (certified,) = crowd.chain()[1:]
        assert len(certified.value.roster) == members
        return crowd.posts[0].paths[0] - crowd.posts[0].paths[1]


@pytest.mark.parametrize(
    ("members", "aggregation", "update"),
    [
        (3, "mean", (2 * 0.01 + 1.0) / 3),  # too few for a usual length
        (4, "mean", (3 * 0.01 + 0.03) / 4),  # clipped at three times the others'
        (4, "median", (3 * 0.01 + 0.03) / 4),  # too few to trim
        (5, "trimmed_mean", 0.01),
        (5, "median", 0.01),
    ],
)
async def test_how_far_one_that_sends_a_hundred_times_as_much_moves_the_others(
    tmp_path: Path, members: int, aggregation: str, update: float
) -> None:
    np.testing.assert_allclose(await moved(tmp_path, members, aggregation), FIRST_STEP * update, rtol=0.01)
