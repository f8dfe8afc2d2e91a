"""A deadline that moves on with every sign of progress."""

import asyncio
from collections.abc import Callable
from datetime import timedelta


class ProgressTimer:
    """Calls ``expired`` when something was waited for longer than ``limit``.

    A time-out per frame would cost more than a small frame; here a wait costs two assignments, and one timer of the
    event loop looks after them now and then. Used from one event loop.

    Attributes:
        since: When the wait began, None between waits; setting it to None is what :meth:`end` does.
    """

    def __init__(self, limit: timedelta, expired: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self.limit = limit
        self._limit = limit.total_seconds()
        self._expired = expired
        self.since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.has_expired = False

    def begin(self) -> None:
        """A wait begins."""
        self.since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit, self._look)

    def end(self) -> None:
        """What was waited for has come."""
        self.since = None

    def stop(self) -> None:
        """No more waits."""
        self.since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self.since is None:
            return  # the next wait starts a timer of its own
        left = self.since + self._limit - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self.has_expired = True
            self._expired()
