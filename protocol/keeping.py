"""Loops that a node cannot do without go on after an error that nobody expected."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(minutes=1)


async def keep_running(work: Callable[[], Awaitable[None]], failed: Callable[[Exception], None]) -> None:
    """Run a loop, and begin it again each time it fails, after a pause that doubles while it fails at once.

    Args:
        work: The loop; that it returns is its proper end.
        failed: Told each error.
    """
    loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
    while True:
        began = loop.time()
        try:
            await work()
            return
        except Exception as error:  # a mistake in this software: it is told, and costs no more than a pause
            failed(error)
        if loop.time() - began > LONGEST_PAUSE.total_seconds():
            pause = FIRST_PAUSE
        await asyncio.sleep(pause.total_seconds())
        pause = min(2 * pause, LONGEST_PAUSE)
