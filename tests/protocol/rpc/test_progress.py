"""A deadline that moves on with every sign of progress."""

import asyncio
from contextlib import closing
from datetime import timedelta

from protocol.rpc.progress import ProgressTimer
from protocol.testing import VirtualLoop

SHORT = timedelta(milliseconds=50)
LONG = timedelta(hours=1)


async def test_a_wait_that_is_too_long_expires() -> None:
    expired = asyncio.Event()
    timer = ProgressTimer(SHORT, expired.set)
    timer.begin()
    await expired.wait()
    assert timer.has_expired


def test_waits_that_end_never_expire_however_many() -> None:
    async def scene() -> None:
        expired = asyncio.Event()
        timer = ProgressTimer(SHORT, expired.set)
        for _ in range(6):
            timer.begin()
            await asyncio.sleep(SHORT.total_seconds() / 3)
            timer.end()
        await asyncio.sleep(2 * SHORT.total_seconds())
        assert not timer.has_expired
        timer.begin()
        await expired.wait()

    with closing(VirtualLoop()) as loop:
        loop.run_until_complete(scene())


async def test_a_stopped_timer_leaves_nothing_with_the_event_loop() -> None:
    timer = ProgressTimer(LONG, lambda: None)
    timer.begin()
    handle = timer._timer
    timer.stop()
    assert handle is not None
    assert handle.cancelled()
