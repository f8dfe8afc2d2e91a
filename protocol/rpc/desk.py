"""The served side without a transport: who calls, whether it may, and the handler that answers.

The same desk answers calls that came over gRPC and over a simulated network. What it checks, in this order,
cheapest first: is the peer at the connection known, has it been wrong too often, does it belong to
the audience, is its rate kept, is there room; then size, header and signature of the envelope; then the message.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from protocol import limits
from protocol.envelope import ReplayWindow, Sealed, unseal
from protocol.errors import Code, NodeError
from protocol.messages.registry import Plane, Role, Spec
from protocol.messages.wire import decode, encoder
from protocol.rpc.carrier import Caller, Incoming, Read, Write
from protocol.rpc.gate import Gate, Place, Strangers
from protocol.rpc.progress import ProgressTimer
from protocol.rpc.routes import Route
from protocol.units import PeerId, RunId

if TYPE_CHECKING:
    from protocol.rpc.endpoint import Endpoint

_log = logging.getLogger(__name__)

_SIGNED_WRONGLY = frozenset(
    code
    for code in Code
    if code.name.startswith("WIRE_") and code not in (Code.WIRE_REPLAY, Code.WIRE_OLD_BOOT)
)
"""What makes an attempt unverified; a repeated message was verified once and is cheap to tell."""


@dataclass(frozen=True)
class Context:
    """What a handler knows of a message besides its contents.

    Attributes:
        sender: Who says it, verified: the signer of the envelope; on the bulk plane the peer at the connection.
        peer: Who delivered it over its authenticated connection. For a statement or topic that was passed on this
            is not the sender; for everything else it is. Audience and rate are those of this peer; of a topic, those
            of its sender.
        sealed: The envelope that came, on the control plane; None on the bulk plane and for a stream of questions.
        version: The version of the message that the sender speaks.
        run: The run that this node belongs to.
    """

    sender: PeerId
    peer: PeerId
    sealed: Sealed[Any] | None
    version: int
    run: RunId | None = None
    _left: Callable[[], float | None] = lambda: None
    _path: Callable[[PeerId], str] = lambda peer: "direct"

    @property
    def time_left(self) -> float | None:
        """Seconds until the caller gives up; None if it did not say."""
        return self._left()

    @property
    def path(self) -> str:
        """How the peer is connected: ``direct``, ``punched`` or ``relayed``."""
        return self._path(self.peer)


class Desk:
    """Finds the handler of a call, checks the call, runs the handler, answers. Used from one event loop."""

    def __init__(self, endpoint: "Endpoint", clock: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._routes: dict[str, Route] = {}
        self.strangers = Strangers(clock=clock)
        self.gate = Gate(clock=clock)
        self.replay = ReplayWindow()
        self.running: set[asyncio.Task[Any]] = set()
        self._waiting: dict[asyncio.Task[Any] | None, float] = {}
        self._late: set[asyncio.Task[Any] | None] = set()
        self._looking: asyncio.TimerHandle | None = None

    def add(self, route: Route) -> None:
        """Serves a message.

        Raises:
            NodeError: ``E-WIRE-001`` if the message has a handler already.
        """
        if route.spec.name in self._routes:
            raise NodeError(Code.WIRE_DECLARATION, f"The message {route.spec.name} has two handlers.")
        self._routes[route.spec.name] = route

    def find(self, name: str) -> Route | None:
        """The handler of a message, None if it has none."""
        return self._routes.get(name)

    def routes(self) -> tuple[Route, ...]:
        """All handlers."""
        return tuple(self._routes.values())

    async def answer(
        self, route: Route, raw: bytes | None, caller: Caller, read: Read | None = None
    ) -> bytes:
        """Runs the handler of a call with one question and one answer.

        Args:
            route: The handler.
            raw: The question; None if it is still to be read.
            caller: Who asks.
            read: Reads the question, once it is clear that it may come.

        Raises:
            NodeError: What the caller is to be told; any other exception of the handler becomes ``E-NET-008``.
        """
        spec, endpoint = route.spec, self._endpoint
        peer = self._known(caller)
        self._admit(spec, peer)
        place = self.gate.enter(peer, route)
        task = asyncio.current_task()
        self.running.add(task)  # type: ignore[arg-type]
        try:
            if raw is None:
                raw = await self._receive(spec, read)
            message, context = self._read(spec, raw, peer, caller)
            try:
                reply = await route.function(message, context)
            except asyncio.CancelledError as error:
                if task.cancelling():  # type: ignore[union-attr]
                    raise
                raise _internal(spec) from error  # what the handler waited for was cancelled, not the call
            if spec.replies is None:
                return b""
            answer = endpoint.pack_reply(spec, reply)
            if spec.plane is Plane.BULK:
                await endpoint.throttle.take(len(answer))
            return answer
        except NodeError:
            raise
        except Exception as error:
            raise _internal(spec) from error
        finally:
            self.running.discard(task)  # type: ignore[arg-type]
            self.gate.leave(peer, route, place)

    async def converse(self, route: Route, incoming: Incoming, caller: Caller, write: Write) -> None:
        """Runs the handler of a call whose question, answer or both are streams.

        Args:
            route: The handler.
            incoming: The questions; one, if the declaration says so.
            caller: Who asks.
            write: Takes each answer, and returns when there is room for the next.

        Raises:
            NodeError: As :meth:`answer`; ``E-NET-003`` if the caller says or reads nothing for too long.
        """
        spec, peer = route.spec, self._known(caller)
        self._admit(spec, peer)
        place = self.gate.enter(peer, route)
        task = asyncio.current_task()
        assert task is not None
        self.running.add(task)
        writing = ProgressTimer(limits.STALL, task.cancel)
        reading = ProgressTimer(spec.timeout or limits.STALL, task.cancel)
        try:
            if spec.asks_stream:
                questions = self._questions(route, place, incoming, peer, caller, reading)
                context = self._context(peer, caller, peer, None, self._declared(spec, caller))
                work = route.function(questions, context)
            else:
                reading.begin()
                raw = await anext(incoming, None)
                reading.end()
                if raw is None:
                    raise NodeError(Code.WIRE_MALFORMED, f"A call of {spec.name} came without its question.")
                work = route.function(*self._read(spec, raw, peer, caller))
            if spec.stream:
                await self._write_all(spec, work, write, writing)
            else:
                frame = self._endpoint.pack_reply(spec, await work)
                if spec.plane is Plane.BULK:
                    await self._endpoint.throttle.take(len(frame))
                await write(frame)
        except NodeError:
            raise
        except asyncio.CancelledError as error:
            if not task.cancelling():
                raise _internal(spec) from error
            expired = writing.has_expired or reading.has_expired
            if not expired or task.uncancel() > 0:
                raise
            limit, what = (limits.STALL, "read") if writing.has_expired else (reading.limit, "said")
            raise NodeError(
                Code.NET_TIMEOUT, f"Nothing of {spec.name} was {what} for {limit.total_seconds():g} s."
            ) from None
        except Exception as error:
            raise _internal(spec) from error
        finally:
            writing.stop()
            reading.stop()
            self.running.discard(task)
            self.gate.leave(peer, route, place)

    async def _write_all(
        self, spec: Spec, replies: AsyncIterator[Any], write: Write, timer: ProgressTimer
    ) -> None:
        cls, name, sent = spec.replies, spec.reply_name, self._endpoint.sent
        throttle = self._endpoint.throttle if spec.plane is Plane.BULK else None
        frame_of = encoder(cls)  # type: ignore[arg-type]
        async for reply in replies:  # what this loop calls per frame is what a stream costs
            try:
                if type(reply) is not cls:
                    raise TypeError(f"the handler of {spec.name} answered with a {type(reply).__name__}")
                frame = frame_of(reply)
                size = len(frame)
                sent[name] += size
                if throttle is not None:
                    if throttle.rate is None:
                        throttle.taken += size
                    else:
                        await throttle.take(size)
                timer.begin()
                await write(frame)
                timer.since = None
                del frame  # before the next is made, which then finds the same memory, still in the cache
            except (Exception, asyncio.CancelledError):  # at a GeneratorExit nothing can be awaited any more
                await replies.aclose()  # type: ignore[attr-defined]
                raise

    async def _questions(
        self,
        route: Route,
        place: Place,
        incoming: Incoming,
        peer: PeerId,
        caller: Caller,
        timer: ProgressTimer,
    ) -> AsyncIterator[Any]:
        """The questions of a stream, each checked as it is read; one beyond the rate is read when it may come."""
        first = True
        while True:
            timer.begin()
            raw = await anext(incoming, None)
            timer.end()
            if raw is None:
                return
            while not first and (
                wait := self.gate.take(place, route)
            ):  # the first is the call, which was counted
                await asyncio.sleep(wait)
            first = False
            yield self._read(route.spec, raw, peer, caller)[0]

    def close(self) -> None:
        """Looks after nothing any more."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    # --- reading --------------------------------------------------------------------------------------------------

    async def _receive(self, spec: Spec, read: Read | None) -> bytes:
        """The question of a call, which has to come whole in time, else its place is given to another.

        One timer looks after all that are waited for: nearly every question is there when it is asked for.
        """
        assert read is not None, "a question that is not there is read"
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        self._waiting[task] = loop.time()
        if self._looking is None:
            self._looking = loop.call_later(limits.STALL.total_seconds() / 2, self._look)
        try:
            raw = await read()
        except asyncio.CancelledError:
            if task not in self._late or task.uncancel() > 0:  # type: ignore[union-attr]
                raise
            raise NodeError(
                Code.NET_TIMEOUT, f"A {spec.name} did not come whole in {limits.STALL.total_seconds():g} s."
            ) from None
        finally:
            self._waiting.pop(task, None)
            self._late.discard(task)
        if raw is None:
            raise NodeError(Code.WIRE_MALFORMED, f"A call of {spec.name} came without its question.")
        return raw

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        limit = limits.STALL.total_seconds()
        for task, since in list(self._waiting.items()):
            if loop.time() - since >= limit and task is not None:
                self._late.add(task)
                task.cancel()
        self._looking = loop.call_later(limit / 2, self._look) if self._waiting else None

    # --- checks ---------------------------------------------------------------------------------------------------

    def _known(self, caller: Caller) -> PeerId:
        peer = caller.peer
        if peer is None:
            address = caller.address
            self.strangers.check(address)
            self.strangers.charge(address)
            raise NodeError(
                Code.NET_UNTRUSTED, "The certificate of the caller is not known here, or no longer."
            )
        return peer

    def _admit(self, spec: Spec, peer: PeerId) -> None:
        self.strangers.check(peer)
        if spec.audience != "anyone" and not self._endpoint.audience(peer, spec.audience):
            raise NodeError(
                Code.NET_AUDIENCE, f"{spec.name} is for {spec.audience} only, and {peer} is none."
            )

    def _read(self, spec: Spec, raw: bytes, peer: PeerId, caller: Caller) -> tuple[Any, Context]:
        """One message as it came: verified and decoded."""
        endpoint = self._endpoint
        try:
            if spec.plane is Plane.BULK:
                version = self._declared(spec, caller)
                return decode(spec.cls, raw), self._context(peer, caller, peer, None, version)
            sealed: Sealed[Any] = unseal(
                raw, run=endpoint.run, expect=spec.cls, me=endpoint.peer_id, peer=peer, window=self.replay,
                verifier=endpoint.verifier,
            )  # fmt: skip
            if sealed.recipient is None and spec.role is Role.REQUEST:
                raise NodeError(Code.WIRE_WRONG_RECIPIENT, f"The request {spec.name} is addressed to nobody.")
        except NodeError as error:
            if error.code in _SIGNED_WRONGLY:
                self.strangers.charge(peer)
            raise
        return sealed.message, self._context(peer, caller, sealed.sender, sealed, sealed.version)

    def _context(
        self, peer: PeerId, caller: Caller, sender: PeerId, sealed: Sealed[Any] | None, version: int
    ) -> Context:
        endpoint = self._endpoint
        context = object.__new__(
            Context
        )  # a frozen dataclass sets its fields one by one; this is for every call
        context.__dict__.update(
            sender=sender,
            peer=peer,
            sealed=sealed,
            version=version,
            run=endpoint.run,
            _left=caller.time_left,
            _path=endpoint.path_of,
        )
        return context

    def _declared(self, spec: Spec, caller: Caller) -> int:
        version = caller.version
        if not spec.understands(version):
            raise NodeError(
                Code.NET_VERSION,
                f"A {spec.name} of version {version} came; this node speaks version {spec.version}.",
            )
        return version


def _internal(spec: Spec) -> NodeError:
    _log.exception("the handler of %s failed", spec.name)
    return NodeError(Code.NET_INTERNAL, f"The peer failed while it handled {spec.name}.")
