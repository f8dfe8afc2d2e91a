"""1 GiB on loopback, origin → relay → client, from ``publish()`` to the verified file.

Beside it, in turn: one copy of the same file by curl from a bare sendfile server, and the reference package. Three
processes of ours hash, store and send the file, curl stores it once. Processes run before the clock does, fresh ones
for each turn.
"""

import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench import casting
from tests.bench.measurement import Measurement
from tests.bench.peers.shardcast_reference import time_reference

SIZE = 1 << 30
PAIRS = 5
REFERENCES = 2  # it takes long, and its time varies little beside the ratio


def run() -> Measurement:
    """Measure."""
    ours, raw, reference = [], [], []
    with casting.folder() as folder:
        file = folder / "file"
        casting.write_random(file, SIZE)
        with casting.raw_server(file) as url:
            for pair in range(PAIRS):
                for call in (ours, raw)[:: 1 if pair % 2 else -1]:
                    with casting.folder() as place:
                        call.append(_broadcast(file, place) if call is ours else _curl(url, place))
        for _ in range(REFERENCES):
            with casting.folder() as place:
                reference.append(time_reference(file, place))
    fastest = min(reference)
    return Measurement(
        {"seconds": statistics.median(ours)},
        {"curl_seconds": statistics.median(raw), "reference_seconds": fastest},
        {
            "time_vs_curl": statistics.median(o / r for o, r in zip(ours, raw, strict=True)),
            "speed_vs_reference": fastest / statistics.median(ours),
        },
    )


def _broadcast(file: Path, folder: Path) -> float:
    with ExitStack() as stack:
        origin = stack.enter_context(casting.origin(folder / "origin"))
        relay = stack.enter_context(casting.relay(folder / "relay", origin.answer()))
        client = stack.enter_context(casting.client(folder / "copy", relay.answer()))
        assert client.answer() == "ready"
        start = time.perf_counter()
        client.tell("0")
        origin.tell(str(file))
        client.answer()
        return time.perf_counter() - start


def _curl(url: str, folder: Path) -> float:
    start = time.perf_counter()
    assert casting.curl(url, folder / "copy").wait() == 0
    return time.perf_counter() - start
