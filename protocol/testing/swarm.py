"""An in-memory swarm: real endpoints and real handlers on a virtual clock, with every fault drawn from one seed."""

import asyncio
import gc
import random
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

from blake3 import blake3

from protocol.identity import Identity, Signer, Verifier, verify
from protocol.testing.conditions import PERFECT, Conditions
from protocol.testing.host import Host, MemoryEndpoint
from protocol.testing.local import RUN
from protocol.testing.network import Network
from protocol.testing.recording import Recorder, Recording, Replayer
from protocol.testing.signatures import KeyedHashes
from protocol.testing.trust import Directory
from protocol.testing.virtual import START, VirtualLoop
from protocol.units import Address, PeerId, RunId

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""Unix seconds of a swarm's beginning."""

_TRIES_TO_END = 5
_GARBAGE = 20_000


class Swarm:
    """Nodes in memory.

    One seed decides everything: identities, boot numbers, every fault, and the module ``random`` while :meth:`run`
    runs. Two swarms with the same seed and the same scene do the same, in one process; across processes the same
    ``PYTHONHASHSEED`` is needed too, since code that walks through a set of texts does so in another order otherwise.

    Args:
        seed: What chance is made from.
        conditions: Of every direction of which nothing else is said.
        keyed: Whether nodes sign with :class:`KeyedHashes`, which is fast, instead of Ed25519.
        run: The run that the endpoints belong to.
        record: Whether to keep what is sent, for :attr:`recording`.
        replay: What happened before; the fates are taken from it, and a scene that sends anything else than then ends
            with ``Diverged``.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        conditions: Conditions = PERFECT,
        keyed: bool = False,
        run: RunId | None = RUN,
        record: bool = False,
        replay: Recording | None = None,
    ) -> None:
        self.seed = seed if replay is None else replay.seed
        self.run_id = run
        self.loop = VirtualLoop()
        self.known = Directory()
        self.hosts: list[Host] = []
        self._recorder = Recorder() if record else None
        self._replayer = None if replay is None else Replayer(replay.entries)
        self.network = Network(
            self.loop, Random(f"network {self.seed}"), conditions=conditions,
            recorder=self._recorder, replayer=self._replayer,
        )  # fmt: skip
        self._keyed = KeyedHashes(self.bytes_for("signatures")) if keyed else None
        self.verifier: Verifier = verify if self._keyed is None else self._keyed.verify
        self._listening: dict[Address, Host] = {}
        self._boots: dict[PeerId, bytes] = {}

    # --- nodes ---------------------------------------------------------------------------------------------------

    def node(self, *, identity: Signer | None = None, start: bool = True, **options: Any) -> Host:
        """Adds a node, which all others know at once, and boots it.

        Args:
            identity: Who it is; made from the seed unless given.
            start: Whether its endpoint serves at once.
            options: Further arguments of :class:`protocol.rpc.Endpoint`: ``audience`` (everybody unless given),
                ``upload``, ``run``.
        """
        number = len(self.hosts) + 1
        host = Host(self, number, identity if identity is not None else self.identity(number))
        self.hosts.append(host)
        host.boot_up(start=start, **options)
        return host

    def nodes(self, count: int, **options: Any) -> tuple[Host, ...]:
        """Adds several nodes."""
        return tuple(self.node(**options) for _ in range(count))

    def identity(self, number: int) -> Signer:
        """The identity that the seed gives a node."""
        seed = self.bytes_for(f"identity {number}")
        return Identity.ephemeral(seed) if self._keyed is None else self._keyed.signer(seed)

    def bytes_for(self, purpose: str) -> bytes:
        """32 bytes that depend on the seed and the purpose alone."""
        return blake3(f"{self.seed} {purpose}".encode()).digest()

    # --- time ----------------------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """Virtual seconds since the beginning."""
        return self.loop.time() - START

    def wall(self) -> float:
        """Unix seconds by a clock that is right."""
        return EPOCH + self.time

    def run(self, scene: Coroutine[Any, Any, T]) -> T:
        """Runs a scene to its end, in as little real time as its work takes.

        Raises:
            Standstill: The scene waits for what can never happen.
            Diverged: A replay did something else than the recording.
        """
        with self._seeded():
            return self.loop.run_until_complete(scene)

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        before, thresholds = random.getstate(), gc.get_threshold()
        random.seed(self.seed)
        gc.set_threshold(_GARBAGE, *thresholds[1:])  # a crowd of small objects that live for a moment each
        try:
            yield
        finally:
            random.setstate(before)
            gc.set_threshold(*thresholds)

    @property
    def recording(self) -> Recording:
        """What was sent so far, if the swarm records."""
        if self._recorder is None:
            raise RuntimeError("this swarm was made without record=True")
        return Recording(self.seed, tuple(self._recorder.entries))

    def close(self) -> None:
        """Ends everything that still runs, that of paused and killed nodes included."""
        if self.loop.is_closed():
            return
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.release_all()

        async def end() -> None:
            left = tasks
            for _ in range(_TRIES_TO_END):
                if left:
                    left = (await asyncio.wait(left, timeout=60.0))[1]
                for task in left:
                    task.cancel()
            await asyncio.gather(*(tasks - left), return_exceptions=True)
            await self.loop.shutdown_asyncgens()

        with self._seeded():
            self.loop.run_until_complete(end())
        self.loop.close()

    def __enter__(self) -> "Swarm":
        """The swarm itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self.close()

    # --- what nodes tell it --------------------------------------------------------------------------------------

    def moved(self, host: Host) -> None:
        """A node booted: everyone learns its new address and certificate."""
        endpoint: MemoryEndpoint = host.endpoint
        self._listening[endpoint.listen] = host
        self._boots[host.peer_id] = endpoint.boot
        self.known.publish(host.peer_id, endpoint.tls.certificate_pem, endpoint.listen)

    def boot_of(self, peer: PeerId) -> bytes | None:
        """The boot number of a peer's latest process, as its record says it."""
        return self._boots.get(peer)

    def listening(self, address: Address) -> Host | None:
        """Who is at an address, None if a call there is refused."""
        host = self._listening.get(address)
        if host is None:
            return None
        if host.endpoint.listen == address and (host.endpoint.address is not None or host.dark):
            return host
        return None
