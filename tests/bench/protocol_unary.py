"""One enveloped request and its reply on loopback, beside the same bare ``grpc.aio`` call over mutual TLS.

Ours signs the request, verifies it, checks replay, rate, audience and room, and decodes into checked values; the
bare call echoes its bytes. Both run in one process, one call at a time, in turn, so that whatever else the machine
does falls on both. The ratio is that of the medians.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from protocol import Asks, field, message, request
from protocol.rpc import Context
from protocol.testing import local_endpoints
from tests.bench.bare_grpc import bare_grpc
from tests.bench.measurement import Measurement

CALLS = 3000
WARM_UP = 300


@message("bench.answer", version=1, max_bytes="4 KiB", rate="1000000/s", audience="member")
class Answer:
    """What comes back."""

    text: str = field(1)


@request("bench.ask", version=1, max_bytes="4 KiB", rate="1000000/s", timeout="5 s", replies=Answer)
class Ask(Asks[Answer]):
    """What is asked."""

    text: str = field(1)


async def on_ask(message: Ask, context: Context) -> Answer:
    """Answers with what was asked."""
    return Answer(message.text)


async def measure() -> tuple[list[float], list[float]]:
    """Seconds of each call, ours and bare."""
    async with local_endpoints(2) as (caller, server), bare_grpc() as bare:
        server.handle(on_ask)

        async def ours() -> None:
            await caller.request(server.peer_id, Ask("a question"))

        async def theirs() -> None:
            await bare.ask(b"a question")

        times: dict[Callable[[], Awaitable[None]], list[float]] = {ours: [], theirs: []}
        for count in range(WARM_UP + CALLS):
            for call, taken in times.items():
                start = time.perf_counter()
                await call()
                if count >= WARM_UP:
                    taken.append(time.perf_counter() - start)
        return times[ours], times[theirs]


def run() -> Measurement:
    """Measure; takes about three seconds."""
    ours, bare = asyncio.run(measure())
    return Measurement(
        figures={
            "median_us": statistics.median(ours) * 1e6,
            "p90_us": statistics.quantiles(ours, n=10)[-1] * 1e6,
        },
        peers={
            "bare_grpc_median_us": statistics.median(bare) * 1e6,
            "bare_grpc_p90_us": statistics.quantiles(bare, n=10)[-1] * 1e6,
        },
        ratios={"latency_vs_bare_grpc": statistics.median(ours) / statistics.median(bare)},
    )
