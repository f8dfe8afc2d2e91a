"""Calls over an in-memory network: what the endpoint and the desk ask of a transport, without a transport.

It keeps gRPC's manners: a call to a port that nobody listens at is refused at once, one into the void ends with its
deadline, a cancelled or overdue call is cancelled at its handler too, whoever writes a stream waits while its reader
has too much before it.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING

from protocol import limits
from protocol.errors import CATALOGUE, Code, NodeError
from protocol.messages.registry import Plane
from protocol.rpc.progress import ProgressTimer
from protocol.rpc.routes import Route
from protocol.testing.conditions import Kind
from protocol.testing.pipe import Pipe
from protocol.testing.virtual import Piece
from protocol.trust import Known
from protocol.units import PeerId

if TYPE_CHECKING:
    from protocol.testing.host import Host, MemoryEndpoint

_LARGEST = int(limits.MAX_BULK + limits.FRAME_SLACK)


class Links:
    """The connections of one endpoint, one per peer and plane."""

    def __init__(self, endpoint: "MemoryEndpoint") -> None:
        self._endpoint = endpoint
        self._links: dict[tuple[PeerId, bool], Link] = {}
        self._seen = -1
        self._stopped = False

    def to(self, peer: PeerId, plane: Plane) -> "Link":
        """The connection to a peer.

        Raises:
            NodeError: ``E-NET-004`` for a peer that is not known, ``E-NET-002`` for one without an address.
        """
        trust = self._endpoint.trust
        if self._stopped:
            raise NodeError(Code.NET_UNREACHABLE, "This node's endpoint has stopped.", peer=peer)
        if self._seen != trust.version:
            self._follow_trust()
        bulk = plane is Plane.BULK
        link = self._links.get((peer, bulk))
        if link is None:
            known = trust.find(peer, bulk=bulk)
            if known is None:
                raise NodeError(
                    Code.NET_UNTRUSTED, f"The certificate of peer {peer} is not known.", peer=peer
                )
            if not known.addresses:
                raise NodeError(Code.NET_UNREACHABLE, f"Peer {peer} has no address.", peer=peer)
            link = self._links[peer, bulk] = Link(self._endpoint, peer, plane, known)
        return link

    def _follow_trust(self) -> None:
        trust = self._endpoint.trust
        self._seen = trust.version
        for key, link in list(self._links.items()):
            if trust.find(link.peer, bulk=link.plane is Plane.BULK) != link.known:
                del self._links[key]
                link.close()

    def stop(self) -> None:
        """Closes every connection; calls under way end with an error."""
        self._stopped = True
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.close()

    def vanish(self) -> None:
        """The process is gone: nobody is told here, the handlers of its calls are cancelled."""
        self._stopped = True
        for link in self._links.values():
            for call in list(link.calls):
                call.vanish()


class Link:
    """One connection. It is there while the peer's process is."""

    def __init__(self, endpoint: "MemoryEndpoint", peer: PeerId, plane: Plane, known: Known) -> None:
        self.endpoint = endpoint
        self.host: Host = endpoint.host
        self.peer = peer
        self.plane = plane
        self.known = known
        self.calls: set[Call] = set()

    async def unary(self, name: str, raw: bytes, version: int, timeout: timedelta) -> bytes:
        """One call with one answer.

        Raises:
            NodeError: What the peer answered, or why it could not be asked.
        """
        call = Call(self, name, version, timeout)
        call.begin(raw)
        try:
            answer = await call.ended
        except asyncio.CancelledError:
            call.close()
            raise
        assert answer is not None, "a call without streams has an answer"
        return answer

    async def open(
        self, name: str, raw: bytes | None, version: int, progress: timedelta, timeout: timedelta | None
    ) -> "StreamCall":
        """A call with a stream; ``raw`` is its one question, None if the questions are a stream, too."""
        return StreamCall(self, name, raw, version, progress, timeout)

    def server(self) -> "Host | None":
        """Who listens at the first of the peer's addresses that is not refused; None if all are."""
        for address in self.known.addresses:
            host = self.host.swarm.listening(address)
            if host is not None:
                return host
        return None

    def close(self) -> None:
        """Ends the calls under way with an error."""
        for call in list(self.calls):
            call.fail(call.lost("closed the connection", Code.NET_UNREACHABLE))
            call.tell_server()


class Call:
    """A call as its caller holds it. It is also the :class:`~protocol.rpc.carrier.Caller` that the desk sees.

    Attributes:
        ended: Its answer; None of a stream that ended well.
        up: The caller's stream, if the questions are one.
        down: The stream of answers, if there is one.
    """

    __slots__ = (
        "_deadline", "_limit", "down", "ended", "host", "link", "name", "plane", "served", "server", "up", "version",
        "was_served",
    )  # fmt: skip

    def __init__(self, link: Link, name: str, version: int, timeout: timedelta | None) -> None:
        host: Host = link.host
        loop = host.loop
        self.link = link
        self.host: Host = host
        self.name = name
        self.plane = link.plane
        self.version = version
        self.ended: asyncio.Future[bytes | None] = loop.create_future()
        self.up: Pipe | None = None
        self.down: Pipe | None = None
        self.served: Served | None = None
        self.was_served = False
        self.server: Host | None = link.server()
        self._limit: float | None = None
        self._deadline: Piece | None = None
        if timeout is not None:
            self._limit = limit = loop.time() + timeout.total_seconds()
            self._deadline = loop.at(limit, self._overdue, None, host.context)

    def begin(self, raw: bytes) -> None:
        """Sends the question."""
        link, host, server = self.link, self.host, self.server
        link.calls.add(self)
        if server is None or not server.shows(link.known.certificate_pem):
            refused = server is None
            code = Code.NET_UNREACHABLE if refused else Code.NET_UNTRUSTED
            what = "cannot be reached (connection refused)" if refused else "shows another certificate"
            network = host.swarm.network
            host.loop.at(
                host.loop.time() + 2 * network.conditions.delay_seconds,
                self.fail, self.lost(what, code), host.context,
            )  # fmt: skip
        elif len(raw) > _LARGEST:
            self.fail(self.lost(f"is sent no more than {_LARGEST} bytes", Code.WIRE_TOO_LARGE))
        else:
            host.swarm.network.carry(host, server, self.plane, Kind.CALL, self.name, raw, self._arrive)

    def lost(self, what: str, code: Code) -> NodeError:
        """Why there is no answer, where the peer gave no reason."""
        peer = self.link.peer
        return NodeError(code, f"Peer {peer} {what}: {self.name}.", peer=peer, message=self.name)

    # --- what the desk asks of a caller --------------------------------------------------------------------------

    @property
    def peer(self) -> PeerId | None:
        """The caller, if the server trusts its certificate."""
        assert self.server is not None
        return self.server.trust.peer_of_certificate(self.link.endpoint.tls.certificate_pem)

    @property
    def address(self) -> str:
        """The caller's network address."""
        return self.host.ip

    def time_left(self) -> float | None:
        """Seconds until the caller gives up."""
        return None if self._limit is None else max(0.0, self._limit - self.host.loop.time())

    # --- what happens to it --------------------------------------------------------------------------------------

    def _arrive(self, raw: bytes | None) -> None:
        """A copy of the question is at its server; None if its connection broke on the way."""
        assert self.server is not None
        self.server.serve(self, raw)

    def answer(self, raw: bytes | None) -> None:
        """The answer came; None if its connection broke on the way."""
        if self.ended.done():
            return
        if raw is None:
            self.fail(self.lost("broke the connection", Code.NET_UNREACHABLE))
            return
        self.ended.set_result(raw)
        self._leave()

    def fail(self, error: NodeError) -> None:
        """The call ends with an error."""
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # a stream's reader may be told instead
            if self.down is not None:
                self.down.fail_reader(error)
            if self.up is not None:
                self.up.fail_writer(error)
            self._leave()

    def close(self) -> None:
        """Ends the call if it has not ended, here and at its handler."""
        if not self.ended.done():
            self.ended.cancel()
        if self._leave():
            self.tell_server()

    def vanish(self) -> None:
        """The caller's process is gone."""
        if self._leave():
            self.tell_server()

    def tell_server(self) -> None:
        """Has the handler cancelled."""
        if self.server is not None:
            self.host.swarm.network.signal(self.host, self.server, self._cancel_served)

    def _cancel_served(self, _: None) -> None:
        if self.served is not None:
            self.served.cancel()

    def _overdue(self, _: None) -> None:
        if not self.ended.done():
            self.fail(self.lost("did not answer in time", Code.NET_TIMEOUT))
            self.tell_server()

    def _leave(self) -> bool:
        """Takes the call from its connection's list; false if it was not there."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None  # what holds itself alive is cleared away late
        if self not in self.link.calls:
            return False
        self.link.calls.discard(self)
        return True


class StreamCall:
    """A call with a stream, as the endpoint uses it: a :class:`~protocol.rpc.carrier.Stream`."""

    def __init__(
        self, link: Link, name: str, raw: bytes | None, version: int, progress: timedelta, timeout: timedelta | None
    ) -> None:  # fmt: skip
        self._call = call = Call(link, name, version, timeout)
        self._progress = progress
        self._reading = ProgressTimer(progress, lambda: self._stalled("sent"))
        self._writing = ProgressTimer(progress, lambda: self._stalled("took"))
        if call.server is not None:
            network = call.host.swarm.network
            call.down = Pipe(network, call.server, call.host, call.plane, name)
            if raw is None:
                call.up = Pipe(network, call.host, call.server, call.plane, name)
        call.begin(raw if raw is not None else b"")

    async def write(self, raw: bytes) -> None:
        """Sends one message; returns when there is room for the next."""
        self._writing.begin()
        if self._call.up is None:
            await self._call.ended
            raise AssertionError("only a call that fails has no stream")
        await self._call.up.write(raw)
        self._writing.end()

    async def end(self) -> None:
        """Says that nothing more will be written."""
        if self._call.up is not None:
            self._call.up.finish()

    async def read(self) -> bytes | None:
        """The next answer, None after the last."""
        self._reading.begin()
        if self._call.down is None:
            await self._call.ended
            raise AssertionError("only a call that fails has no stream")
        frame = await self._call.down.read()
        self._reading.end()
        return frame

    def close(self) -> None:
        """Ends the call, if it has not ended."""
        self._reading.stop()
        self._writing.stop()
        self._call.close()

    def _stalled(self, what: str) -> None:
        call, peer = self._call, self._call.link.peer
        sentence = f"Peer {peer} {what} nothing of {call.name} for {self._progress.total_seconds():g} s."
        call.fail(NodeError(Code.NET_TIMEOUT, sentence, peer=peer, message=call.name))
        call.tell_server()


class Served:
    """A copy of a call at its server. Of a call that came twice only the first copy is answered."""

    __slots__ = ("_call", "_done", "_host", "_mute", "task")

    def __init__(self, host: "Host", call: Call) -> None:
        self._host = host
        self._call = call
        self._mute = call.was_served
        self._done = False
        self.task: asyncio.Task[None] | None = None
        if not self._mute:
            call.served, call.was_served = self, True

    async def run(self, route: Route, raw: bytes) -> None:
        """Has the desk answer, and sends what it says."""
        call, desk = self._call, self._host.endpoint.desk
        try:
            if call.down is None:
                answer = await desk.answer(route, raw, call)
            else:
                await desk.converse(route, self._questions(raw), call, self._write)
                answer = b""
        except NodeError as error:
            self._fail(error)
        except asyncio.CancelledError:
            self._fail(call.lost("ended the call", Code.NET_UNREACHABLE))
            raise
        else:
            self._end(answer)
        finally:
            self._done = True
            self._host.serving.discard(self)
            if call.served is self:
                call.served = None  # what holds itself alive is cleared away late
            self.task = None

    async def _questions(self, raw: bytes) -> AsyncIterator[bytes]:
        up = self._call.up
        if up is None:
            yield raw
        elif not self._mute:
            while (frame := await up.read()) is not None:
                yield frame

    async def _write(self, frame: bytes) -> None:
        if not self._mute and self._call.down is not None:
            await self._call.down.write(frame)

    def _end(self, answer: bytes) -> None:
        call = self._call
        if self._done or self._mute:
            return
        self._done = True
        if call.down is not None:
            call.down.finish(lambda: call.answer(b""))
        else:
            self._host.swarm.network.carry(
                self._host, call.host, call.plane, Kind.ANSWER, call.name, answer, call.answer
            )

    def _fail(self, error: NodeError) -> None:
        call, peer = self._call, self._host.peer_id
        if self._done or self._mute or (call.down is not None and call.down.broken):
            return
        self._done = True
        fix = error.fix if error.fix != CATALOGUE[error.code].fix else None
        told = NodeError(
            error.code, error.sentence[: limits.MAX_SENTENCE], fix=fix, peer=peer, message=call.name
        )

        def deliver(arrived: bytes | None) -> None:
            call.fail(call.lost("broke the connection", Code.NET_UNREACHABLE) if arrived is None else told)

        kind = Kind.ANSWER if call.down is None else Kind.FRAME
        said = str(error.code).encode()
        self._host.swarm.network.carry(self._host, call.host, call.plane, kind, call.name, said, deliver)

    def cancel(self) -> None:
        """The caller left."""
        if not self._done:
            self._done = True
            self._host.serving.discard(self)
            if self.task is not None:
                self.task.cancel()

    def reset(self) -> None:
        """The server's process is gone, and the network says so to the caller."""
        if not self._done:
            self._done = True
            if not self._mute:
                call = self._call
                error = call.lost("broke the connection", Code.NET_UNREACHABLE)
                self._host.swarm.network.signal(self._host, call.host, lambda _: call.fail(error))
