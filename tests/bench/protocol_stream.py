"""A bulk stream on loopback, beside a bare ``grpc.aio`` stream over mutual TLS with chunks of the same size.

Both transfer the same content, which lies in memory, and count what they read. The bare stream makes ``bytes`` of each
chunk, as grpc wants them; ours makes a message of each chunk, encodes, decodes and bounds it, keeps the upload limit
and the deadlines of progress. A third stream, with a ratio and no target, is bare grpc that writes one chunk again and
again: it transfers nothing that anybody has, and saves a copy that no transfer can.

1 MiB is the size of the frames that transfers use, 4 MiB that of an all-reduce's chunks; 64 KiB is for comparison. The
streams run in turn, in an order that changes, and a ratio is the median of the turns' ratios. What TCP has learned on a
connection makes up to a fifth of its speed: after a slow reader, bare or ours, it stays that much slower. So both
sides' connections have the same past, the turns are spread over several pairs of new ones, and memory is measured on
another: what a stream of 512 MiB adds to what one of 128 MiB took, while its reader stops for a moment after every
chunk.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import psutil

from protocol import Asks, field, message, request
from protocol.rpc import Context
from protocol.testing import local_endpoints
from tests.bench.bare_grpc import CONTENT, bare_grpc
from tests.bench.measurement import Measurement

SIZES = {"64kib": (2**16, 400), "1mib": (2**20, 48), "4mib": (2**22, 12)}
CONNECTIONS = 6
TURNS = 10
WARM_UP = 2
PAYLOAD = 2**29


@message("bench.chunk", version=1, max_bytes="8 MiB", rate="1000000/s", audience="member", plane="bulk")
class Chunk:
    """One chunk of the stream."""

    index: int = field(1)
    data: memoryview = field(2)


@request(
    "bench.pull",
    version=1,
    max_bytes="1 KiB",
    rate="1000000/s",
    timeout="30 s",
    replies=Chunk,
    stream="replies",
    plane="bulk",
)
class Pull(Asks[Chunk]):
    """Asks for ``count`` chunks of ``size`` bytes."""

    size: int = field(1)
    count: int = field(2)


async def on_pull(message: Pull, context: Context) -> AsyncIterator[Chunk]:
    """Streams parts of the content, from its start again after its end."""
    for index in range(message.count):
        begin = index * message.size % len(CONTENT)
        yield Chunk(index, CONTENT[begin : begin + message.size])


async def measure_speeds() -> dict[str, list[tuple[float, float, float]]]:
    """Bytes per second of each turn (ours, bare, bare of one chunk) by size, on new connections."""
    async with local_endpoints(2) as (caller, server), bare_grpc() as bare:
        server.handle(on_pull)

        async def ours(size: int, count: int) -> int:
            came = 0
            async with aclosing(caller.stream(server.peer_id, Pull(size, count))) as chunks:
                async for chunk in chunks:
                    came += len(chunk.data)
            return came

        calls: list[Callable[[int, int], Awaitable[int]]] = [ours, bare.pull, bare.repeat]
        speeds: dict[str, list[tuple[float, float, float]]] = {}
        for name, (size, count) in SIZES.items():
            turns = []
            for number in range(WARM_UP + TURNS):
                found = {}
                for call in calls if number % 2 else reversed(calls):
                    start = time.perf_counter()
                    came = await call(size, count)
                    found[call] = came / (time.perf_counter() - start)
                    assert came == size * count
                turns.append((found[ours], found[bare.pull], found[bare.repeat]))
            speeds[name] = turns[WARM_UP:]
        return speeds


async def measure_memory() -> float:
    """Bytes that a stream of ours to a slow reader held at most."""
    async with local_endpoints(2) as (caller, server):
        server.handle(on_pull)
        process = psutil.Process()

        async def slowly(count: int) -> int:
            """Most resident bytes while ``count`` MiB come, and their reader stops after every chunk."""
            most = 0
            async with aclosing(caller.stream(server.peer_id, Pull(2**20, count))) as chunks:
                async for _ in chunks:
                    most = max(most, process.memory_info().rss)
                    await asyncio.sleep(0.001)
            return most

        before = await slowly(PAYLOAD // 2**22)  # what the process needs once, whatever is transferred
        return max(0, await slowly(PAYLOAD // 2**20) - before)


def run() -> Measurement:
    """Measure; takes about half a minute."""
    held = asyncio.run(measure_memory())
    speeds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in SIZES}
    for _ in range(CONNECTIONS):
        for name, turns in asyncio.run(measure_speeds()).items():
            speeds[name] += turns
    figures, peers, ratios = {}, {}, {}
    for name, turns in speeds.items():
        figures[f"stream_{name}_mb_per_s"] = statistics.median(turn[0] for turn in turns) / 1e6
        peers[f"bare_grpc_{name}_mb_per_s"] = statistics.median(turn[1] for turn in turns) / 1e6
        ratios[f"speed_{name}_vs_bare_grpc"] = statistics.median(turn[0] / turn[1] for turn in turns)
        ratios[f"speed_{name}_vs_bare_grpc_of_one_chunk"] = statistics.median(
            turn[0] / turn[2] for turn in turns
        )
    figures["memory_of_a_slow_reader_mib"] = held / 2**20
    ratios["memory_vs_payload"] = held / PAYLOAD
    return Measurement(figures=figures, peers=peers, ratios=ratios)
