"""When a holder that failed or is busy is asked again: later each time, and not for ever."""

import asyncio
import random
from datetime import timedelta

from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from shardcast import limits

BUSY = frozenset({Code.SHC_BUSY, Code.NET_RATE})
"""What says "come back", and is no failure."""


class Pace:
    """Counts one holder's failures running.

    Args:
        patience: How long a holder that is only busy is asked again.
    """

    def __init__(self, patience: timedelta) -> None:
        self._patience = patience.total_seconds()
        self._strikes = 0
        self._waits = 0
        self._since = monotonic()

    def good(self) -> None:
        """Something good came: begin anew."""
        self._strikes = self._waits = 0
        self._since = monotonic()

    def again(self, error: NodeError) -> bool:
        """Whether the holder should be asked again after this error."""
        self._waits += 1
        if error.code in BUSY:
            return monotonic() - self._since < self._patience
        self._strikes += 1
        return error.retriable and error.code is not Code.SHC_BAD_SHARD and self._strikes < limits.STRIKES

    async def pause(self) -> None:
        """Wait before asking again; jittered, so that many clients do not come back at once."""
        longest = min(0.1 * 2**self._waits, 3.0)
        await asyncio.sleep(longest * random.uniform(0.5, 1.0))
