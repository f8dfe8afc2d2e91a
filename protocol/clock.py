"""What time it is: the event loop's own clock for waiting, and a wall clock corrected by what peers say."""

import asyncio
import time


def monotonic() -> float:
    """Seconds that never go back: the running event loop's clock, so that a simulated loop gives simulated time.

    Outside an event loop it is ``time.monotonic()``, which is also what a usual loop's clock is.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
