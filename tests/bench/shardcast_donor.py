"""What a donor's steps lose while it serves a checkpoint over the data plane to one joiner, again and again.

The donor's endpoint and the process that makes its steps (matrix products) share one processor and the joiner has
another: the worst that a donor can have. Steps are timed alone and while the joiner fetches, in turn: with an upload
limit of 200 Mb/s, and with none.
"""

import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench import casting
from tests.bench.measurement import Measurement

SIZE = 256 << 20
TURNS = 5
LIMIT = 25_000_000
"""Bytes per second: 200 Mb/s."""
STEPS = 50
_NAME = "checkpoint"


def run() -> Measurement:
    """Measure."""
    with casting.folder() as folder:
        file = folder / "file"
        casting.write_random(file, SIZE)
        limited, _ = _slower(folder, file, LIMIT)
        free, cost = _slower(folder, file, 0)
    return Measurement(
        {"donor_cpu_seconds_per_gb": cost},
        ratios={"step_at_200_mb_per_s_vs_alone": limited, "step_unlimited_vs_alone": free},
    )


def _slower(folder: Path, file: Path, limit: int) -> tuple[float, float]:
    """How much longer a step takes, and what serving takes of a processor."""
    ratios, used, came = [], 0.0, 0
    with ExitStack() as stack:

        def role(*arguments: str) -> casting.Process:
            command = (sys.executable, "-m", "tests.bench.shardcast_donor", *arguments)
            return stack.enter_context(casting.Process(*command))

        steps = role("steps")
        steps.answer()
        joiner = role("joiner", str(folder / "copy"))
        donor = role(
            "donor", str(folder / f"shelf{limit}"), str(file), str(limit), json.dumps(joiner.answer())
        )
        joiner.ask(json.dumps(donor.answer()))
        for _ in range(TURNS):
            alone = steps.ask(str(STEPS))
            before = donor.used()
            joiner.ask("begin")
            ratios.append(steps.ask(str(STEPS)) / alone)
            came += joiner.ask("end")
            used += donor.used() - before
    return statistics.median(ratios), used / came * 1e9


# the processes


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


def _alone_on(processor: int) -> None:
    """Keep to one processor, where the system has a say in that."""
    with contextlib.suppress(AttributeError, OSError):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[processor % len(allowed)]})


def _steps() -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy as np

    _alone_on(0)
    weights = np.random.default_rng(1).random((512, 512), dtype=np.float32)
    _say("ready")
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            for _ in range(4):
                weights @ weights
        _say(time.perf_counter() - start)


def _met(endpoint: Any) -> dict[str, object]:
    return {
        "peer": endpoint.peer_id,
        "certificate": endpoint.tls.certificate_pem.decode(),
        "port": endpoint.address.port,
    }


def _learn(endpoint: Any, met: dict[str, Any]) -> None:
    from protocol.units import Address, PeerId

    at = Address("127.0.0.1", met["port"])
    endpoint.trust.learn(PeerId(met["peer"]), met["certificate"].encode(), (at,))


async def _donor(shelf: str, file: str, limit: str, met: str) -> None:
    from protocol.testing import make_node
    from protocol.units import Bytes
    from shardcast.building import build_manifest
    from shardcast.service import attach
    from shardcast.shelf import Shelf

    _alone_on(0)
    held = Shelf(Path(shelf))
    manifest = build_manifest(Path(file), _NAME)
    held.add(manifest, Path(file))
    endpoint = make_node(upload=Bytes(limit) if int(limit) else None)
    await endpoint.start()
    attach(endpoint, held)
    _learn(endpoint, json.loads(met))
    _say({**_met(endpoint), "digest": manifest.digest.hex()})
    await asyncio.Event().wait()


async def _joiner(into: str) -> None:
    from protocol.testing import make_node
    from protocol.units import PeerId
    from shardcast.client import fetch
    from shardcast.draw import Progress
    from shardcast.expect import Expect

    _alone_on(1)
    endpoint = make_node()
    await endpoint.start()
    _say(_met(endpoint))
    met = json.loads(await asyncio.to_thread(sys.stdin.readline))
    _learn(endpoint, met)
    _say("ready")
    expect = Expect(manifest_digest=bytes.fromhex(met["digest"]))
    earlier = now = 0  # bytes of fetches that ended, and of the one that is under way
    first = asyncio.Event()

    def note(progress: Progress) -> None:
        nonlocal now
        now = progress.bytes
        first.set()

    async def again() -> None:
        nonlocal earlier, now
        while True:
            for name in (into, f"{into}.part"):
                Path(name).unlink(missing_ok=True)
            earlier, now = earlier + now, 0
            await fetch(endpoint, _NAME, [PeerId(met["peer"])], Path(into), expect, progress=note)

    while await asyncio.to_thread(sys.stdin.readline):
        earlier = now = 0
        first.clear()
        fetching = asyncio.create_task(again())
        await first.wait()
        _say("begun")
        await asyncio.to_thread(sys.stdin.readline)
        fetching.cancel()
        await asyncio.gather(fetching, return_exceptions=True)
        _say(earlier + now)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["steps"]:
            _steps()
        case ["donor", *arguments]:
            asyncio.run(_donor(*arguments))
        case [_, into]:
            asyncio.run(_joiner(into))
