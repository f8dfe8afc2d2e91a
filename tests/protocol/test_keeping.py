"""A loop that fails is told and begun again, later each time it fails at once."""

import asyncio
from itertools import pairwise

import pytest

from protocol.keeping import keep_running
from protocol.testing import Swarm


def test_a_loop_that_fails_is_begun_again_after_a_growing_pause() -> None:
    began: list[float] = []
    failures: list[str] = []

    async def work() -> None:
        now = asyncio.get_running_loop().time()
        began.append(now)
        if len(began) == 10:
            await asyncio.sleep(1000)
        if len(began) < 12:
            raise RuntimeError(f"failure {len(began)}")

    with Swarm(seed=1, run=None) as swarm:
        swarm.run(keep_running(work, lambda error: failures.append(str(error))))
    assert failures == [f"failure {number}" for number in range(1, 12)]
    pauses = [round(after - before) for before, after in pairwise(began)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 1001, 2]


def test_a_cancelled_loop_ends() -> None:
    async def scene() -> None:
        task = asyncio.ensure_future(keep_running(asyncio.Event().wait, print))  # type: ignore[arg-type]
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Swarm(seed=1, run=None) as swarm:
        swarm.run(scene())
