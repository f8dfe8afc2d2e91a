"""Time on the virtual loop: it passes only where nothing else is left to do."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from protocol.clock import monotonic
from protocol.testing import Standstill, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


def test_a_year_of_sleep_takes_no_time(loop: VirtualLoop) -> None:
    before, real = loop.time(), time.monotonic()
    loop.run_until_complete(asyncio.sleep(365 * 86_400))
    assert loop.time() - before == 365 * 86_400
    assert time.monotonic() - real < 60


def test_sleepers_wake_in_the_order_of_their_times_and_equal_ones_in_that_of_their_calls(
    loop: VirtualLoop,
) -> None:
    woken: list[str] = []

    async def sleep(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(name)

    async def scene() -> None:
        await asyncio.gather(sleep("late", 3), sleep("first", 1), sleep("second", 1), sleep("now", 0))

    loop.run_until_complete(scene())
    assert woken == ["now", "first", "second", "late"]


def test_deadlines_are_kept_and_cancelled_ones_do_not_move_the_clock(loop: VirtualLoop) -> None:
    async def scene() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        for _ in range(500):
            async with asyncio.timeout(1000):
                await asyncio.sleep(0.001)
        return loop.time()

    start = loop.time()
    assert loop.run_until_complete(scene()) - start == pytest.approx(5.5)


def test_work_for_a_thread_runs_in_place_and_its_errors_come_back(loop: VirtualLoop) -> None:
    async def scene() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(pow, 2, 10)

    assert loop.run_until_complete(scene()) == 1024


def test_waiting_for_what_can_never_happen_is_an_error_that_names_who_waits(loop: VirtualLoop) -> None:
    async def scene() -> None:
        await asyncio.Event().wait()

    task = loop.create_task(scene(), name="godot")
    with pytest.raises(Standstill, match="godot"):
        loop.run_until_complete(task)
    task.cancel()
    loop.run_until_complete(asyncio.sleep(0))


def test_an_error_in_a_callback_is_reported_and_ends_nothing_else(loop: VirtualLoop) -> None:
    told: list[object] = []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

    async def scene() -> None:
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    loop.run_until_complete(scene())
    assert [type(each) for each in told] == [ZeroDivisionError]


def test_the_protocols_clock_is_the_loops_inside_and_the_machines_outside(loop: VirtualLoop) -> None:
    async def scene() -> float:
        await asyncio.sleep(10_000_000)
        return monotonic()

    assert loop.run_until_complete(scene()) == loop.time()
    assert abs(monotonic() - time.monotonic()) < 60
