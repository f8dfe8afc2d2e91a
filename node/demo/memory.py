"""How much memory this process and all below it hold, at most."""

import contextlib
import threading
from datetime import timedelta
from pathlib import Path

import psutil

INTERVAL = timedelta(seconds=4)
"""Between two looks. A look costs some milliseconds of a core per process."""


def held_by_tree() -> int:
    """Bytes that this process and those below it hold now; pages that several share count once."""
    own = psutil.Process()
    total = 0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            total += _proportional(process)
    return total


def _proportional(process: psutil.Process) -> int:
    try:
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except PermissionError:
        pass
    return int(process.memory_info().rss)  # an upper bound


class PeakMemory:
    """Looks again and again in a thread of its own, from `start` to `stop`.

    Attributes:
        peak: Bytes, the most that was seen.
    """

    def __init__(self, interval: timedelta = INTERVAL) -> None:
        self.peak = 0
        self._interval = interval
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look, name="peak-memory", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End. Safe to call twice."""
        self._ending.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            self.peak = max(self.peak, held_by_tree())
            if self._ending.wait(self._interval.total_seconds()):
                return
