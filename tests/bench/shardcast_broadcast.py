"""1 GiB on loopback, origin → relay → client, from ``publish()`` to the verified file.

Beside it, in turn: one copy of the same file by curl from a bare sendfile server, the reference package, and the least
that three processes need which hash, store and send the file by bare sockets. Processes run before the clock does,
fresh ones for each turn. Processor seconds are those of our three processes, and of the bare three.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterable
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
    ours, raw, bare, reference = [], [], [], []
    with casting.folder() as folder:
        file = folder / "file"
        casting.write_random(file, SIZE)
        with casting.raw_server(file) as url:
            for pair in range(PAIRS):
                for times, call in (
                    (ours, lambda place: _broadcast(file, place)),
                    (bare, lambda place: _bare(file, place)),
                    (raw, lambda place: _curl(url, place)),
                )[:: 1 if pair % 2 else -1]:
                    with casting.folder() as place:
                        times.append(call(place))
        for _ in range(REFERENCES):
            with casting.folder() as place:
                reference.append(time_reference(file, place))
    fastest = min(reference)
    return Measurement(
        {"seconds": _median(ours), "cpu_seconds": statistics.median(used for _, used in ours)},
        {
            "curl_seconds": _median(raw),
            "reference_seconds": fastest,
            "bare_seconds": _median(bare),
            "bare_cpu_seconds": statistics.median(used for _, used in bare),
        },
        {
            "time_vs_curl": statistics.median(o[0] / r[0] for o, r in zip(ours, raw, strict=True)),
            "speed_vs_reference": fastest / _median(ours),
            "time_vs_bare": statistics.median(o[0] / b[0] for o, b in zip(ours, bare, strict=True)),
            "cpu_vs_bare": statistics.median(o[1] / b[1] for o, b in zip(ours, bare, strict=True)),
        },
    )


_Spent = tuple[float, float]
"""Seconds, and processor seconds."""


def _median(spent: list[_Spent]) -> float:
    return statistics.median(seconds for seconds, _ in spent)


def _used(processes: Iterable[casting.Process]) -> float:
    return sum(process.used() for process in processes)


def _broadcast(file: Path, folder: Path) -> _Spent:
    with ExitStack() as stack:
        origin = stack.enter_context(casting.origin(folder / "origin"))
        relay = stack.enter_context(casting.relay(folder / "relay", origin.answer()))
        client = stack.enter_context(casting.client(folder / "copy", relay.answer()))
        assert client.answer() == "ready"
        processes = (origin, relay, client)
        start, used = time.perf_counter(), _used(processes)
        client.tell("0")
        origin.tell(str(file))
        client.answer()
        return time.perf_counter() - start, _used(processes) - used


def _bare(file: Path, folder: Path) -> _Spent:
    with ExitStack() as stack:

        def process(role: str, path: Path, port: int = 0) -> casting.Process:
            script = str(Path(__file__).parent / "peers" / "bare_chain.py")
            return stack.enter_context(
                casting.Process(sys.executable, script, role, str(path), str(SIZE), str(port))
            )

        origin = process("origin", file)
        relay = process("relay", folder / "relay", origin.answer())
        client = process("client", folder / "copy", relay.answer())
        client.answer()
        processes = (origin, relay, client)
        start, used = time.perf_counter(), _used(processes)
        for each in (client, relay, origin):
            each.tell("go")
        client.answer()
        return time.perf_counter() - start, _used(processes) - used


def _curl(url: str, folder: Path) -> _Spent:
    start, before = time.perf_counter(), os.times()
    assert casting.curl(url, folder / "copy").wait() == 0
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - start, used
