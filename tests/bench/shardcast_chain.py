"""An origin, three relays in a chain, and a client, each in a network namespace whose link carries 200 Mb/s.

256 MiB from ``publish()`` to the verified file, beside the time that one such link takes for as many bytes. Needs root.
"""

import asyncio
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench import casting
from tests.bench.measurement import Measurement
from tests.protocol.paths.lab import Lab, missing

SIZE = 256 << 20
RATE = 200_000_000  # bits per second
SHAPE = "burst 512kb latency 50ms"  # a bucket of 20 ms: one that is too small loses rate where the machine is busy
RELAYS = 3
ROUNDS = 3


def run() -> Measurement:
    """Measure.

    Raises:
        RuntimeError: Network namespaces cannot be made here.
    """
    if lack := missing():
        raise RuntimeError(lack)
    seconds = []
    with casting.folder() as folder:
        casting.write_random(folder / "file", SIZE)
        for turn in range(ROUNDS):
            seconds.append(_chain(folder / "file", folder / str(turn)))
    link = SIZE * 8 / RATE
    return Measurement(
        {"seconds": statistics.median(seconds)},
        {"link_seconds": link},
        {"time_vs_link": statistics.median(seconds) / link},
    )


def _chain(file: Path, folder: Path) -> float:
    lab = Lab(folder)
    try:
        names = ["origin", *(f"relay{i}" for i in range(RELAYS)), "client"]
        hosts = [lab.public(name, rate=f"{RATE // 1_000_000}mbit", shape=SHAPE) for name in names]
        places = [casting.Place(host.address, host.space) for host in hosts]
        with ExitStack() as stack:
            origin = stack.enter_context(casting.origin(folder / "origin", places[0]))
            url = origin.answer()
            for i, place in enumerate(places[1:-1]):
                relay = stack.enter_context(casting.relay(folder / f"relay{i}", url, place))
                url = relay.answer()
            client = stack.enter_context(casting.client(folder / "copy", url, places[-1]))
            assert client.answer() == "ready"
            start = time.perf_counter()
            client.tell("0")
            origin.tell(str(file))
            client.answer()
            return time.perf_counter() - start
    finally:
        asyncio.run(lab.close())
