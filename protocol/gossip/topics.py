"""A node's topics: what it publishes, what it takes and passes on, and how it comes by what it missed.

This module knows no network. A *carrier* brings messages to neighbours and hands in what they say: the libp2p host
(:mod:`protocol.gossip.carrier`), or anything else with the same three methods.
"""

import asyncio
import logging
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from protocol.clock import monotonic
from protocol.envelope import Sealed, seal
from protocol.errors import Code, NodeError
from protocol.gossip.history import History
from protocol.gossip.judging import Judge, Judgement, Verdict
from protocol.gossip.limits import ASK_EVERY, ASK_PEERS, ASK_TIMEOUT, FRAME, MAX_TOPICS, QUEUE
from protocol.gossip.messages import AskRecent, Kept, Recent
from protocol.identity import Signer, Verifier, verify
from protocol.messages.fields import declaration_error
from protocol.messages.registry import Role, Spec, spec_of
from protocol.rpc import Context, Endpoint
from protocol.rpc.routes import route_of
from protocol.units import PeerId, RunId

_log = logging.getLogger(__name__)

H = TypeVar("H", bound=Callable[..., Any])
_Handler = Callable[[Any, Context], Any]

_SOON = 2.0
"""Seconds until a peer is asked for what this node could not take yet: a record or an admission was still to come."""


class Carrier(Protocol):
    """What brings messages to a node's neighbours. Its methods are called from the gossip's event loop."""

    async def join(self, topic: str) -> None:
        """Subscribe to a topic."""
        ...

    async def publish(self, topic: str, raw: bytes) -> None:
        """Give a message of this node to its neighbours."""
        ...

    async def stop(self) -> None:
        """Leave everything."""
        ...


def _nobody() -> Iterable[PeerId]:
    return ()


def _no_record(peer: PeerId) -> bytes | None:
    return None


class Gossip:
    """The topics of one node. Everything but :meth:`receive` is used from one event loop.

    Args:
        identity: Who publishes.
        run: The run; messages of others are refused.
        boot: This process's boot number.
        audience: Who may publish what; also called from the carrier's thread.
        endpoint: Where peers ask for what they missed, and are asked; None for a node that does neither.
        peers: Who may be asked.
        boot_of: The boot number in a sender's latest record, if there is one; also called from the carrier's thread.
        verifier: Checks signatures.
        clock: Monotonic seconds; also called from the carrier's thread.
        draw: Chooses whom to ask.

    Attributes:
        counts: How many messages met which fate: ``accept``, ``published``, ``late``, ``lost``, or an error code.
    """

    def __init__(
        self,
        identity: Signer,
        *,
        run: RunId,
        boot: bytes,
        audience: Callable[[PeerId, str], bool],
        endpoint: Endpoint | None = None,
        peers: Callable[[], Iterable[PeerId]] = _nobody,
        boot_of: Callable[[PeerId], bytes | None] = _no_record,
        verifier: Verifier = verify,
        clock: Callable[[], float] = monotonic,
        draw: random.Random | None = None,
    ) -> None:
        self.run = run
        self.counts: Counter[str] = Counter()
        self._identity, self._boot = identity, boot
        self._endpoint, self._peers = endpoint, peers
        self._judge = Judge(run, audience, boot_of=boot_of, verifier=verifier, clock=clock)
        self._history = History(clock)
        self._draw = draw or random.Random()
        self._lock = threading.Lock()
        self._topics: dict[str, _Topic] = {}
        self._sequences: Counter[str] = Counter()
        self._carrier: Carrier | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        if endpoint is not None:
            endpoint.handle(self.on_ask_recent)

    # ---- subscribing and publishing

    def handle(self, function: H) -> H:
        """Subscribes to the topic that the function's first parameter names; usable as a decorator, and at any time.

        ``async def f(message: T, context: Context) -> None``. Messages of one topic are handled one after the
        other. A handler that is slower than its topic loses the oldest messages; one that raises is logged.

        Raises:
            NodeError: ``E-WIRE-001`` if the function's type does not fit, or the topic has a handler already.
        """
        spec = route_of(function).spec
        if spec.role is not Role.TOPIC:
            raise declaration_error(f"{spec.name} is no topic: decorate it with @topic.")
        if spec.name in self._topics:
            raise declaration_error(f"{spec.name} has a handler already.")
        if len(self._topics) >= MAX_TOPICS:
            raise declaration_error(f"A node subscribes to at most {MAX_TOPICS} topics.")
        topic = self._topics[spec.name] = _Topic(spec, function, asyncio.Queue(QUEUE))
        if self._loop is not None:
            self._tasks.append(asyncio.ensure_future(self._serve(topic)))
            self._tasks.append(asyncio.ensure_future(self._join_late(topic)))
        return function

    async def publish(self, message: Any) -> Sealed[Any]:
        """Publishes a message of a topic to everyone who subscribes, wherever they are. It may reach them late.

        Raises:
            NodeError: ``E-WIRE-001`` for a class that is no topic, ``E-WIRE-002`` if it is too large.
        """
        spec = spec_of(type(message))
        if spec.role is not Role.TOPIC:
            raise declaration_error(f"{spec.name} is no topic: decorate it with @topic.")
        self._sequences[spec.name] += 1
        sealed = seal(self._identity, self.run, message, boot=self._boot, sequence=self._sequences[spec.name])
        with self._lock:
            self._judge.own(spec, sealed)
            self._history.add(spec.name, sealed)
        self.counts["published"] += 1
        if self._carrier is not None:
            await self._carrier.publish(spec.name, sealed.raw)
        return sealed

    # ---- living

    async def start(self, carrier: Carrier | None = None) -> None:
        """Subscribes through a carrier, and asks peers for what was published before.

        Without a carrier, or before :meth:`rejoin` brings one, asking is all there is.
        """
        self._loop, self._carrier = asyncio.get_running_loop(), carrier
        for topic in tuple(self._topics.values()):
            self._tasks.append(asyncio.ensure_future(self._serve(topic)))
            if carrier is not None:
                await carrier.join(topic.spec.name)
        if self._endpoint is not None:
            self._tasks.append(asyncio.ensure_future(self._keep_asking()))

    async def rejoin(self, carrier: Carrier) -> None:
        """Goes on with another carrier, after the one before failed; asks for what was published meanwhile."""
        self._carrier = carrier
        for topic in tuple(self._topics.values()):
            await carrier.join(topic.spec.name)
        self.ask_soon()

    async def stop(self) -> None:
        """Leaves all topics; handlers that run are cancelled."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        carrier, self._carrier, self._loop = self._carrier, None, None
        if carrier is not None:
            await carrier.stop()

    async def _join_late(self, topic: "_Topic") -> None:
        if self._carrier is not None:
            await self._carrier.join(topic.spec.name)
        self.ask_soon()

    # ---- what arrives

    def receive(self, name: str, raw: bytes, neighbour: PeerId, *, late: bool = False) -> Verdict:
        """Judges a message and has it handled if it is accepted; the carrier passes on what is accepted.

        May be called from any thread.

        Args:
            name: The topic.
            raw: The envelope.
            neighbour: The node that brought it.
            late: It is an answer to a question for what was missed.
        """
        topic = self._topics.get(name)
        if topic is None:
            return Verdict(Judgement.IGNORE, Code.NET_UNKNOWN_MESSAGE)
        with self._lock:
            verdict = self._judge.judge(topic.spec, raw, late=late)
            if verdict.sealed is not None:
                self._history.add(name, verdict.sealed)
            self.counts[str(verdict.code or Judgement.ACCEPT)] += 1
        loop = self._loop
        if loop is None or loop.is_closed():
            return verdict
        call = loop.call_soon if _runs(loop) else loop.call_soon_threadsafe
        if verdict.sealed is not None:
            call(self._deliver, topic, verdict.sealed, neighbour)
        elif verdict.code in (Code.NET_AUDIENCE, Code.NET_UNTRUSTED, Code.NET_RATE):
            call(self.ask_soon)
        return verdict

    def _deliver(self, topic: "_Topic", sealed: Sealed[Any], neighbour: PeerId) -> None:
        if topic.queue.full():
            topic.queue.get_nowait()
            self.counts["lost"] += 1
        topic.queue.put_nowait((sealed, neighbour))

    async def _serve(self, topic: "_Topic") -> None:
        while True:
            sealed, neighbour = await topic.queue.get()
            context = Context(
                sender=sealed.sender, peer=neighbour, sealed=sealed, version=sealed.version, run=self.run
            )
            try:
                await topic.function(sealed.message, context)
            except NodeError as error:
                _log.info(
                    "The handler of %s refused a message of %s: %s", topic.spec.name, sealed.sender, error
                )
            except Exception:
                _log.exception("The handler of %s failed.", topic.spec.name)

    # ---- what was missed

    def ask_soon(self) -> None:
        """Have peers asked for what this node does not have, within seconds."""
        self._asking.set()

    async def _keep_asking(self) -> None:
        count = ASK_PEERS
        while True:
            peers = list(self._peers())
            answers = [await self._ask(peer) for peer in self._draw.sample(peers, min(count, len(peers)))]
            self._asking.clear()
            # at the start there may be nobody yet
            wait = ASK_EVERY.total_seconds() if any(answers) or count == 1 else _SOON
            count = 1 if any(answers) else count
            try:
                async with asyncio.timeout(wait * self._draw.uniform(0.8, 1.2)):
                    await self._asking.wait()
                count = ASK_PEERS
                await asyncio.sleep(_SOON)
            except TimeoutError:
                pass

    async def _ask(self, peer: PeerId) -> bool:
        assert self._endpoint is not None
        with self._lock:
            have = self._history.digests()
        question = AskRecent(topics=tuple(sorted(self._topics)), have=have[-4096:])
        try:
            async with aclosing(self._endpoint.stream(peer, question, progress=ASK_TIMEOUT)) as answers:
                async for answer in answers:
                    for kept in answer.kept:
                        verdict = self.receive(kept.topic, kept.envelope, peer, late=True)
                        self.counts["late"] += verdict.judgement is Judgement.ACCEPT
                    await asyncio.sleep(0)
        except NodeError:
            return False
        return True

    async def on_ask_recent(self, message: AskRecent, context: Context) -> AsyncIterator[Recent]:
        """Give a late subscriber what it does not have."""
        with self._lock:
            missing = list(self._history.since(message.topics, frozenset(message.have)))
        part: list[Kept] = []
        size = 0
        for name, raw in missing:
            part.append(Kept(topic=name, envelope=raw))
            size += len(raw)
            if size >= FRAME:
                yield Recent(kept=tuple(part))
                part, size = [], 0
        yield Recent(kept=tuple(part))


@dataclass(frozen=True)
class _Topic:
    spec: Spec
    function: _Handler
    queue: "asyncio.Queue[tuple[Sealed[Any], PeerId]]"


def _runs(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this code runs in that loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
