"""What gossip costs a node, and how fast a message goes along a chain of six hosts.

Start and memory are those of a fresh process that already has what a daemon has (gRPC, protobuf, numpy), from before
the import of libp2p until its host listens. The chain is of real hosts in one process, each with a thread of its own;
a message is judged, signatures of host and sender included, at every hop before it goes on.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time

from tests.bench.measurement import Measurement
from tests.protocol.gossip.scene import Node, chain
from tests.protocol.gossip.words import News

HOSTS = 6
MESSAGES = 100
_START = """
import asyncio, json, time
import numpy, psutil
from protocol.gossip import Gossip
from tests.protocol.gossip.scene import Node

async def main():
    process = psutil.Process()
    memory, began, cpu = process.memory_info().rss, time.perf_counter(), time.process_time()
    node = await Node().start()
    took, busy = time.perf_counter() - began, time.process_time() - cpu
    print(json.dumps([took, busy, (process.memory_info().rss - memory) / 1e6]))
    await node.stop()

asyncio.run(main())
"""


def start() -> tuple[float, float, float]:
    """Seconds, processor seconds and megabytes until the first host of a process listens."""
    done = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, check=True)
    seconds, busy, megabytes = json.loads(done.stdout)
    return seconds, busy, megabytes


async def along_a_chain() -> tuple[list[float], float]:
    """Seconds of each message from one end to the other, and processor seconds per message and host."""
    nodes = [await Node().start() for _ in range(HOSTS)]
    try:
        await chain(nodes)
        times = []
        busy = time.process_time()
        for number in range(MESSAGES):
            began = time.perf_counter()
            await nodes[0].gossip.publish(News(text=str(number)))
            await nodes[-1].hears(str(number))
            times.append(time.perf_counter() - began)
        return times, (time.process_time() - busy) / MESSAGES / HOSTS
    finally:
        for node in nodes:
            await node.stop()


def run() -> Measurement:
    """Measures both."""
    starts = [start() for _ in range(3)]
    times, busy = asyncio.run(along_a_chain())
    return Measurement(
        figures={
            "start_seconds": statistics.median(each[0] for each in starts),
            "start_cpu_seconds": statistics.median(each[1] for each in starts),
            "memory_mb": statistics.median(each[2] for each in starts),
            "milliseconds_per_hop": statistics.median(times) / (HOSTS - 1) * 1e3,
            "cpu_milliseconds_per_message_and_host": busy * 1e3,
        }
    )
