"""What tests of handlers need: an in-memory swarm on a virtual clock, and real endpoints on loopback.

A test of an extension begins with :class:`Swarm`::

    def test_my_handler() -> None:
        with Swarm(seed=1) as swarm:
            alice, bob = swarm.nodes(2)
            bob.handle(on_ask)
            answer = swarm.run(alice.request(bob.peer_id, Ask()))

``protocol.testing.fixtures`` has pytest fixtures, ``protocol.testing.strategies`` Hypothesis strategies for every
message, ``protocol.testing.fuzzing`` an entry point for each decoder.
"""

from protocol.testing.conditions import PERFECT, Conditions
from protocol.testing.host import Host, MemoryEndpoint
from protocol.testing.local import RUN, everybody, introduce, local_endpoints, make_node
from protocol.testing.recording import Diverged, Recording
from protocol.testing.signatures import KeyedHashes
from protocol.testing.swarm import Swarm
from protocol.testing.virtual import Standstill, VirtualLoop

__all__ = [
    "PERFECT",
    "RUN",
    "Conditions",
    "Diverged",
    "Host",
    "KeyedHashes",
    "MemoryEndpoint",
    "Recording",
    "Standstill",
    "Swarm",
    "VirtualLoop",
    "everybody",
    "introduce",
    "local_endpoints",
    "make_node",
]
