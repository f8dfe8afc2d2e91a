"""What a node holds for and against its neighbours. Scores belong to nodes, so a new host key does not clear them."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from protocol.gossip.limits import (
    BANNED_FOR,
    MAX_KNOWN,
    POINTS_BAD,
    POINTS_BANNED,
    POINTS_FLOOD,
    POINTS_HALVE,
    POINTS_MOST,
    POINTS_NEW,
)


@dataclass
class _Account:
    points: float
    since: float
    banned_until: float = -math.inf


class Scores:
    """Points per neighbour: bad messages and floods cost, first copies of good ones earn a little, all fades.

    Used by one thread at a time. A name is a node's peer id, or a host's where its node is not known.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def bad(self, name: str) -> bool:
        """It passed on what no honest node passes on. Whether it is cut off from now on."""
        return self._change(name, -POINTS_BAD)

    def flood(self, name: str) -> bool:
        """It sent faster than it may. Whether it is cut off from now on."""
        return self._change(name, -POINTS_FLOOD)

    def good(self, name: str) -> None:
        """It was the first to bring a good message."""
        self._change(name, POINTS_NEW)

    def score(self, name: str) -> float:
        """Its points, 0 for one of whom nothing is known."""
        account = self._accounts.get(name)
        return 0.0 if account is None else self._faded(account)

    def banned(self, name: str) -> bool:
        """Whether it is cut off."""
        account = self._accounts.get(name)
        return account is not None and self._clock() < account.banned_until

    def _faded(self, account: _Account) -> float:
        return float(account.points * 0.5 ** ((self._clock() - account.since) / POINTS_HALVE.total_seconds()))

    def _change(self, name: str, points: float) -> bool:
        now = self._clock()
        account = self._accounts.pop(name, None) or _Account(0.0, now)
        account.points = min(POINTS_MOST, self._faded(account) + points)
        account.since = now
        self._accounts[name] = account
        if len(self._accounts) > MAX_KNOWN:
            self._forget_one()
        if account.points > POINTS_BANNED:
            return False
        account.banned_until = now + BANNED_FOR.total_seconds()
        account.points = POINTS_BANNED / 2  # at the end of the ban it is not quite new
        return True

    def _forget_one(self) -> None:
        """Drops the account that was not touched for longest, of those that are not cut off if there is one."""
        for name in self._accounts:
            if not self.banned(name):
                del self._accounts[name]
                return
        self._accounts.popitem(last=False)
