"""The window against a simulated link: a queue of unlimited size in front of a line of fixed rate."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from protocol.paths.limits import CHUNK, FIRST_WINDOW, MAX_WINDOW, MIN_WINDOW, TARGET_DELAY
from protocol.paths.window import Window

TARGET = TARGET_DELAY.total_seconds()


@dataclass
class Link:
    """A line of ``rate`` bytes per second and ``delay`` seconds there and back, and a window that keeps it busy."""

    rate: float
    delay: float
    now: float = 0.0
    free_at: float = 0.0
    arriving: deque[tuple[float, int]] = field(default_factory=deque)
    delays: list[tuple[float, float]] = field(default_factory=list)

    def run(self, window: Window, seconds: float) -> int:
        """Sends as much as the window allows; returns the bytes delivered."""
        end, before = self.now + seconds, window.delivered
        while self.now < end:
            while (room := window.room()) > 0:
                count = min(int(CHUNK), room)
                self.free_at = max(self.now, self.free_at) + count / self.rate
                window.send(count, self.now)
                self.arriving.append((self.free_at + self.delay, window.sent))
                self.delays.append((self.now, self.free_at - self.now))
            self.now, delivered = self.arriving.popleft()
            window.acknowledge(delivered, self.now)
        return window.delivered - before


@pytest.mark.failure_mode(24)
@pytest.mark.parametrize("megabits", [2, 10, 100])
@pytest.mark.parametrize("delay", [0.005, 0.05, 0.2])
def test_a_slow_link_is_filled_and_its_queue_stays_short(megabits: float, delay: float) -> None:
    link, window = Link(megabits * 125_000, delay), Window(0.0)
    link.run(window, 10)
    delivered = link.run(window, 100)
    possible = min(link.rate, MAX_WINDOW / (delay + TARGET)) * 100
    assert delivered > 0.85 * possible
    queued = [behind for when, behind in link.delays if when > 10]
    # a whole window leaves at once after the link was empty; and on two megabits one chunk takes 262 ms
    assert max(queued) < delay + 2.5 * TARGET + (int(MIN_WINDOW) + int(CHUNK)) / link.rate


def test_the_queue_stays_short_for_hours() -> None:
    link, window = Link(1_250_000, 0.03), Window(0.0)
    link.run(window, 7200)
    late = [behind for when, behind in link.delays if when > 7000]
    assert max(late) < 3 * TARGET, "the base is learnt anew, so it does not creep up"


def test_a_link_that_becomes_slower_is_noticed() -> None:
    link, window = Link(12_500_000, 0.02), Window(0.0)
    link.run(window, 20)
    link.rate = 1_250_000
    link.run(window, 5)
    link.delays.clear()
    link.run(window, 20)
    assert max(behind for _, behind in link.delays) < 3 * TARGET


def test_a_window_that_is_not_used_does_not_grow() -> None:
    window = Window(0.0)
    for step in range(1000):
        window.send(100, step * 0.01)
        window.acknowledge(window.sent, step * 0.01 + 0.001)
    assert window.size == FIRST_WINDOW


@pytest.mark.parametrize("delivered", [101, 49])
def test_an_impossible_acknowledgement_is_refused(delivered: int) -> None:
    window = Window(0.0)
    window.send(100, 0.0)
    window.acknowledge(50, 0.1)
    with pytest.raises(ValueError):
        window.acknowledge(delivered, 0.2)


def test_the_window_is_bounded_at_both_ends() -> None:
    fast, slow = Window(0.0), Window(0.0)
    Link(1e10, 0.01).run(fast, 2)
    assert fast.size == MAX_WINDOW
    Link(10_000, 0.01).run(slow, 200)
    assert MIN_WINDOW <= slow.size < 2 * MIN_WINDOW
