"""What time it is: the event loop's own clock for waiting, and a wall clock corrected by what peers say.

Freshness of messages never comes from a clock. Only what lives for minutes or longer is judged by the wall clock
(directory records, admissions, bans), and a machine's clock may be wrong by hours. So a node keeps time of its own: it
starts at what its machine says, adopts the median of its peers when it joins, stays at the median of them and itself
from then on, and warns when the machine's clock differs. Peers are asked for *their* corrected time; so all agree,
whoever is right, and nothing moves while they do. A minority that lies moves nothing beyond what an honest peer says.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from statistics import median

WARN = timedelta(seconds=30)
"""From this difference on a node says that its machine's clock is wrong."""


def monotonic() -> float:
    """Seconds that never go back: the running event loop's clock, so that a simulated loop gives simulated time.

    Outside an event loop it is ``time.monotonic()``, which is also what a usual loop's clock is.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def difference(theirs: float, asked: float, answered: float) -> float:
    """By how many seconds a peer's clock is ahead, from its answer to a question; both ways count as equally long."""
    return theirs - (asked + answered) / 2


def since_boot() -> float:
    """Seconds that never go back and go on while the machine is suspended, where it can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class PeerClock:
    """A wall clock that agrees with the peers. Used from one thread.

    It runs on a clock that nobody sets: whoever sets the machine's clock while the node runs changes nothing here.

    Args:
        wall: The machine's clock, Unix seconds.
        ticks: Seconds that never go back.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, *, ticks: Callable[[], float] = since_boot
    ) -> None:
        self._wall, self._ticks = wall, ticks
        self._base = wall() - ticks()
        self._joined = False

    def now(self) -> float:
        """Unix seconds as the peers see them."""
        return self._base + self._ticks()

    @property
    def wrong_by(self) -> float:
        """By how many seconds the machine's clock is ahead of the peers."""
        return self._wall() - self.now()

    def agree(self, differences: Iterable[float]) -> float:
        """Moves to the median of the peers, and of this node once it has agreed with some before.

        Args:
            differences: By how many seconds each peer's time is ahead of :meth:`now`, measured just now, one for each
                peer that is known to be who it says.

        Returns:
            By how many seconds this clock was moved.
        """
        heard = list(differences)
        if not heard:
            return 0.0
        shift = median([*heard, 0.0] if self._joined else heard)
        self._joined = True
        self._base += shift
        return shift

    def found(self) -> None:
        """There was nobody to ask: others adopt this node's time, and it counts itself from now on."""
        self._joined = True

    @property
    def warning(self) -> str | None:
        """A sentence if the machine's clock is wrong, else None."""
        wrong = self.wrong_by
        if abs(wrong) <= WARN.total_seconds():
            return None
        way = "ahead of" if wrong > 0 else "behind"
        return (
            f"This machine's clock is {_span(abs(wrong))} {way} those of the peers; the node goes by theirs."
        )


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
