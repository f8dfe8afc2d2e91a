"""What a coordinator holds and how fast it is over hours of a large run."""

import asyncio
import gc
import statistics
import threading
import time
from pathlib import Path

import psutil
import pytest

from node.coordinator.fold import replay
from node.coordinator.service import Service
from node.coordinator.store import Store
from tests.node.coordinator.sample import one_round, opening

MEMBERS = 256
ROUND = 300.0  # seconds, as over the internet


def resident() -> float:
    """Memory of this process, MiB."""
    gc.collect()
    return float(psutil.Process().memory_info().rss / 2**20)


def taken_up(number: int) -> int:
    """How many facts there are up to a round."""
    return len(opening(MEMBERS)) + (number + 1) * len(list(one_round(0, MEMBERS)))


@pytest.mark.soak
def test_memory_stays_flat_and_a_day_is_replayed_a_thousand_times_faster(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    service = Service(store, tmp_path)
    service.begin()
    loop = asyncio.new_event_loop()
    running = asyncio.run_coroutine_threadsafe(service.run(), loop)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    held: list[float] = []
    rounds = int(86_400 / ROUND)
    for fact in opening(MEMBERS):
        service.take(fact)
    for number in range(rounds):
        taken = [service.take(fact) for fact in one_round(number, MEMBERS)]
        for done in taken:
            done.result(600)
        while service.view.sequence != taken_up(number):
            time.sleep(0.01)
        held.append(resident())
    running.cancel()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    service.end()
    full = held[96:]  # 64 rounds with their time lines are kept, and the allocator needs some more to settle
    slope = statistics.linear_regression(range(len(full)), full).slope * 3600 / ROUND
    print(f"{slope:.2f} MiB per hour of updates, {full[-1]:.0f} MiB in all")
    assert slope < 1.0, held

    again = Store(store.url)
    began = time.process_time()
    last = replay(stored.fact for stored in again.facts()).tip.round
    seconds = time.process_time() - began
    again.close()
    print(f"a day in {seconds:.1f} s of a core: {86_400 / seconds:.0f} times faster")
    assert last == rounds - 1
    assert 86_400 / seconds >= 1000
