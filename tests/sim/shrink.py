"""Finds a small schedule that still breaks an invariant: faults are taken away, then made shorter."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.sim.faults import Fault
from tests.sim.schedule import Schedule

MOST_TRIES = 120


def shrink(schedule: Schedule, breaks: Callable[[Schedule], bool]) -> Schedule:
    """The smallest schedule found that still breaks.

    Args:
        schedule: One that breaks.
        breaks: Plays a schedule; whether an invariant did not hold.
    """
    tries = 0
    seen = {schedule.faults}
    found = True
    while found and tries < MOST_TRIES:
        found = False
        for faults in _smaller(schedule.faults):
            if faults in seen:
                continue
            seen.add(faults)
            tries += 1
            candidate = replace(schedule, faults=faults)
            if breaks(candidate):
                schedule, found = candidate, True
                break
            if tries >= MOST_TRIES:
                break
    return schedule


def _smaller(faults: Sequence[Fault]) -> Iterator[tuple[Fault, ...]]:
    """Schedules that are smaller: without a half, a quarter, ... one of the faults, or with one of them shorter."""
    size = len(faults) // 2
    while size:
        for begin in range(0, len(faults), size):
            yield (*faults[:begin], *faults[begin + size :])
        size //= 2
    for index, fault in enumerate(faults):
        if fault.length > 0.5:
            shorter = replace(fault, length=round(fault.length / 2, 3))
            yield (*faults[:index], shorter, *faults[index + 1 :])
