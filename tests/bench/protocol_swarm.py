"""The in-memory swarm: messages per second of one core, and how long a thousand nodes take to be there.

A message is sent by one node, sealed, carried, unsealed, checked, decoded and handled by another, and its
acknowledgement is carried back and awaited; a hundred nodes do that at the same time. Seconds are those of the
processor, so that other work on the machine does not count; the whole runs in one thread. The peer is the envelope
alone, sealed and unsealed with the same signer: the ratio is the share of the time that the envelope takes.
"""

import asyncio
import statistics
import time
from collections.abc import Callable

from protocol import field, message
from protocol.envelope import seal_raw, unseal
from protocol.messages import REGISTRY
from protocol.rpc import Context
from protocol.testing import RUN, Swarm
from tests.bench.measurement import Measurement

SENDERS = 100
WORDS = {"keyed": 40, "ed25519": 10}
ROUNDS = 5
NODES = 1000

with REGISTRY.isolated():

    @message("bench.swarm-word", version=1, max_bytes="1 KiB", rate="1000000000/s", audience="anyone")
    class Word:
        """A small message."""

        text: str = field(1)
        number: int = field(2)


async def on_word(message: Word, context: Context) -> None:
    """Hears a word."""


def run() -> Measurement:
    """Measure; takes about fifteen seconds."""
    figures = {"thousand_nodes_start_seconds": start(NODES)}
    peers: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for kind, words in WORDS.items():
        carried, bare = [], []
        with Swarm(keyed=kind == "keyed") as swarm:
            for node in swarm.nodes(SENDERS):
                node.handle(on_word)
            talk(swarm, words)  # to warm up
            for _ in range(ROUNDS):
                carried.append(SENDERS * words / seconds(lambda: talk(swarm, words)))  # noqa: B023
                bare.append(SENDERS * words / seconds(lambda: envelopes(swarm, SENDERS * words)))  # noqa: B023
        figures[f"{kind}_messages_per_second"] = statistics.median(carried)
        peers[f"{kind}_envelopes_per_second"] = statistics.median(bare)
        ratios[f"{kind}_swarm_vs_envelope"] = statistics.median(carried) / statistics.median(bare)
    return Measurement(figures=figures, peers=peers, ratios=ratios)


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds that the work takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def talk(swarm: Swarm, words: int) -> None:
    """Every node sends that many words, one after the other, to nine others in turn."""
    hosts = swarm.hosts

    async def chat(at: int) -> None:
        me = hosts[at]
        for number in range(words):
            other = hosts[(at + 1 + number % 9) % len(hosts)]
            await me.send(other.peer_id, Word("hello, neighbour", number))

    async def scene() -> None:
        await asyncio.gather(*(chat(at) for at in range(len(hosts))))

    swarm.run(scene())


def envelopes(swarm: Swarm, count: int) -> None:
    """The envelope's part alone."""
    one, other = swarm.hosts[:2]
    for number in range(count):
        raw = seal_raw(
            one.identity, RUN, Word("hello, neighbour", number), recipient=other.peer_id, boot=bytes(16),
            sequence=number,
        )  # fmt: skip
        unseal(raw, run=RUN, expect=Word, me=other.peer_id, verifier=swarm.verifier)


def start(count: int) -> float:
    """Seconds until that many nodes with Ed25519 keys are there and each has heard from its neighbour."""
    began = time.perf_counter()
    with Swarm() as swarm:
        for node in swarm.nodes(count):
            node.handle(on_word)
        talk(swarm, 1)
        return time.perf_counter() - began
