"""Eight clients at one relay on loopback, 256 MiB each, beside eight curls at a bare sendfile server.

The relay has the version. Clients hash what they get and write it to a file, curl only writes it. Both run in turn, and
the ratio is the median of the pairs' ratios.
"""

import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench import casting
from tests.bench.measurement import Measurement

CLIENTS = 8
SIZE = 256 << 20
PAIRS = 5


def run() -> Measurement:
    """Measure."""
    ours, bare = [], []
    with casting.folder() as folder, ExitStack() as stack:
        file = folder / "file"
        casting.write_random(file, SIZE)
        origin = stack.enter_context(casting.origin(folder / "origin"))
        relay = stack.enter_context(casting.relay(folder / "relay", origin.answer()))
        url = relay.answer()
        raw = stack.enter_context(casting.raw_server(file))
        clients = [stack.enter_context(casting.client(folder / f"client{i}", url)) for i in range(CLIENTS)]
        assert all(client.answer() == "ready" for client in clients)
        origin.ask(str(file))
        clients[0].ask("0")  # the relay has it then
        for pair in range(PAIRS):
            for call in (_clients, _curls)[:: 1 if pair % 2 else -1]:
                for copy in folder.glob("client*"):
                    copy.unlink()
                if call is _clients:
                    ours.append(_clients(clients))
                else:
                    bare.append(_curls(raw, folder))
    total = CLIENTS * SIZE / 1e6
    return Measurement(
        {"goodput_mb_per_s": total / statistics.median(ours)},
        {"curls_mb_per_s": total / statistics.median(bare)},
        {"goodput_vs_curls": statistics.median(b / o for o, b in zip(ours, bare, strict=True))},
    )


def _clients(clients: list[casting.Process]) -> float:
    start = time.perf_counter()
    for client in clients:
        client.tell("0")
    for client in clients:
        client.answer()
    return time.perf_counter() - start


def _curls(url: str, folder: Path) -> float:
    start = time.perf_counter()
    copies = [casting.curl(url, folder / f"client{i}") for i in range(CLIENTS)]
    assert all(copy.wait() == 0 for copy in copies)
    return time.perf_counter() - start
