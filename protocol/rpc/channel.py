"""The caller's side: one connection per peer and plane, authenticated to the peer's certificate."""

import asyncio
import ipaddress
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio
from grpc._cython.cygrpc import InternalError

from protocol import limits
from protocol.errors import Code, NodeError
from protocol.messages.registry import Plane
from protocol.rpc.faults import from_call
from protocol.rpc.progress import ProgressTimer
from protocol.tls import TlsIdentity
from protocol.trust import Known, Trust
from protocol.units import Address, PeerId

METHOD_PREFIX = "/intellect.v1/"
VERSION_KEY = "intellect-version"


def common_options(keepalive: timedelta) -> list[tuple[str, int]]:
    """Options of gRPC that both sides of a connection share."""
    most = int(limits.MAX_BULK + limits.FRAME_SLACK)
    return [
        ("grpc.max_receive_message_length", most),
        ("grpc.max_send_message_length", most),
        ("grpc.compression_enabled_algorithms_bitset", 1),  # none: nothing is inflated before it is bounded
        ("grpc.keepalive_time_ms", milliseconds(keepalive)),
        ("grpc.keepalive_timeout_ms", milliseconds(2 * keepalive)),
        # a minute unless it is said here too, whatever the line above says
        ("grpc.http2.ping_timeout_ms", milliseconds(2 * keepalive)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def milliseconds(time: timedelta) -> int:
    """Whole milliseconds, for gRPC's options."""
    return int(time / timedelta(milliseconds=1))


def dial(link: "Link") -> grpc.aio.Channel:
    """A connection to the link's address, over mutual TLS."""
    slow = link.plane is Plane.BULK
    options: list[tuple[str, Any]] = [
        *common_options(limits.KEEPALIVE_BULK if slow else limits.KEEPALIVE_CONTROL),
        ("grpc.ssl_target_name_override", link.peer),
        ("grpc.use_local_subchannel_pool", 1),  # so that control and bulk are two connections
        ("grpc.initial_reconnect_backoff_ms", milliseconds(limits.BACKOFF_FIRST)),
        ("grpc.max_reconnect_backoff_ms", milliseconds(limits.BACKOFF_LAST)),
        ("grpc.min_reconnect_backoff_ms", milliseconds(limits.CONNECT_TIMEOUT)),
        ("grpc.enable_retries", 0),  # what may be said twice is for the caller to know
        ("grpc.enable_http_proxy", 0),
    ]
    credentials = grpc.ssl_channel_credentials(
        root_certificates=link.known.certificate_pem,
        private_key=link.tls.key_pem,
        certificate_chain=link.tls.certificate_pem,
    )
    return grpc.aio.secure_channel(_target(link.address), credentials, options=options)


Dial = Callable[["Link"], grpc.aio.Channel]
"""Opens the connection of a link: :func:`dial`, or what a test or a tunnel puts in its place."""


class Link:
    """One connection to one peer. It reconnects by itself, with jittered back-off."""

    def __init__(self, peer: PeerId, plane: Plane, known: Known, tls: TlsIdentity, dial: Dial = dial) -> None:
        self.peer = peer
        self.plane = plane
        self.known = known
        self.tls = tls
        self._dial = dial
        self._at = 0
        self._choosing = asyncio.Lock()
        self._methods: dict[str, Any] = {}
        self.channel = self._dial(self)

    @property
    def address(self) -> Address:
        """The address in use."""
        return self.known.addresses[self._at]

    def move(self, known: Known) -> None:
        """Takes other addresses of the same peer, the one in use among them."""
        self._at = known.addresses.index(self.address)
        self.known = known

    async def prepare(self) -> None:
        """With several addresses, finds one that answers; with one, leaves all to gRPC, which fails at once."""
        if len(self.known.addresses) == 1 or self.channel.get_state() is grpc.ChannelConnectivity.READY:
            return
        async with self._choosing:
            for _ in self.known.addresses:
                if await self._connected():
                    return
                await self.channel.close()
                self._at = (self._at + 1) % len(self.known.addresses)
                self._methods.clear()
                self.channel = self._dial(self)

    async def _connected(self) -> bool:
        async def settle() -> bool:
            while True:
                state = self.channel.get_state(try_to_connect=True)
                if state is grpc.ChannelConnectivity.READY:
                    return True
                if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
                    return False
                await self.channel.wait_for_state_change(state)

        try:
            return await asyncio.wait_for(settle(), limits.CONNECT_TIMEOUT.total_seconds())
        except TimeoutError:
            return False

    async def unary(self, name: str, raw: bytes, version: int, timeout: timedelta) -> bytes:
        """One call with one answer.

        Raises:
            NodeError: What the peer answered, or why it could not be asked.
        """
        if len(self.known.addresses) > 1:
            await self.prepare()
        method = self._methods.get(name)
        if method is None:
            method = self._methods[name] = self.channel.unary_unary(METHOD_PREFIX + name)
        try:
            answer: bytes | None = await method(
                raw, timeout=timeout.total_seconds(), metadata=_metadata(version)
            )
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.CancelledError) as error:
            raise self.failure(error, name) from error
        if answer is None:  # gRPC takes a call that ends well for one that was answered
            raise NodeError(
                Code.WIRE_MALFORMED,
                f"{self.peer} ended {name} without an answer.",
                peer=self.peer,
                message=name,
            )
        return answer

    async def open(
        self, name: str, raw: bytes | None, version: int, progress: timedelta, timeout: timedelta | None
    ) -> "GrpcStream":
        """A call with a stream; ``raw`` is its one question, None if the questions are a stream, too."""
        await self.prepare()
        seconds, metadata = None if timeout is None else timeout.total_seconds(), _metadata(version)
        if raw is None:
            call = self.channel.stream_stream(METHOD_PREFIX + name)(metadata=metadata, timeout=seconds)
        else:
            call = self.channel.unary_stream(METHOD_PREFIX + name)(raw, metadata=metadata, timeout=seconds)
        return GrpcStream(self, name, call, progress)

    def failure(self, error: BaseException, name: str) -> BaseException:
        """What gRPC raised, made ours; a cancellation of the task itself stays what it is."""
        if isinstance(error, grpc.aio.AioRpcError):
            return from_call(error, self.peer, name)
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                return error
        # not the task was cancelled, but the connection closed under it
        return NodeError(
            Code.NET_UNREACHABLE,
            f"The connection to {self.peer} was closed: {name}.",
            peer=self.peer,
            message=name,
        )


class GrpcStream:
    """A call under way."""

    def __init__(self, link: Link, name: str, call: Any, progress: timedelta) -> None:
        self._link = link
        self._name = name
        self._call = call
        self._progress = progress
        self._timer = ProgressTimer(progress, call.cancel)
        self._writing = ProgressTimer(progress, call.cancel)

    async def write(self, raw: bytes) -> None:
        """Sends one message; returns when there is room for the next.

        Raises:
            NodeError: ``E-NET-003`` if there was none in time; else why the call ended.
        """
        self._writing.begin()
        try:
            await self._call.wait_for_connection()
            # Not `write`: where that meets the end of a call whose status is not read yet, it puts an error of its own
            # into the status' place, and why the peer ended the call is lost.
            await self._call._cython_call.send_serialized_message(raw)
        except InternalError as error:
            raise NodeError(
                Code.NET_UNREACHABLE, f"{self._link.peer} has ended {self._name}.", peer=self._link.peer
            ) from error
        except (
            grpc.aio.AioRpcError,
            grpc.aio.UsageError,
            asyncio.CancelledError,
            asyncio.InvalidStateError,
        ) as error:
            if isinstance(error, asyncio.CancelledError):
                self._call.cancel()
            raise self._failure(error) from error
        self._writing.end()

    async def end(self) -> None:
        """Says that nothing more will be written."""
        try:
            await self._call.done_writing()
        except (
            grpc.aio.AioRpcError,
            grpc.aio.UsageError,
            asyncio.CancelledError,
            asyncio.InvalidStateError,
        ) as error:
            raise self._failure(error) from error

    async def read(self) -> bytes | None:
        """The next answer, None after the last.

        Raises:
            NodeError: As :meth:`Link.unary`; ``E-NET-003`` when none came in time.
        """
        self._timer.begin()
        try:
            frame = await self._call.read()
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.CancelledError) as error:
            raise self._failure(error) from error
        self._timer.since = None
        return None if frame is grpc.aio.EOF else frame

    def _failure(self, error: BaseException) -> BaseException:
        failure = self._link.failure(error, self._name)
        stalled = self._timer.has_expired or self._writing.has_expired
        if not stalled or not isinstance(failure, NodeError):
            return failure
        peer, seconds = self._link.peer, self._progress.total_seconds()
        what = "sent" if self._timer.has_expired else "took"
        return NodeError(
            Code.NET_TIMEOUT,
            f"Peer {peer} {what} nothing of {self._name} for {seconds:g} s.",
            peer=peer,
            message=self._name,
        )

    def close(self) -> None:
        """Ends the call, if it has not ended."""
        self._timer.stop()
        self._writing.stop()
        self._call.cancel()


class Links:
    """The connections of one endpoint, kept in step with what is trusted."""

    def __init__(self, trust: Trust, tls: TlsIdentity, dial: Dial = dial) -> None:
        self._trust = trust
        self._tls = tls
        self._dial = dial
        self._links: dict[tuple[PeerId, Plane], Link] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._seen = -1
        self._stopped = False

    def to(self, peer: PeerId, plane: Plane) -> Link:
        """The connection to a peer; it is made anew where the peer's certificate or address changed.

        Raises:
            NodeError: ``E-NET-004`` for a peer that is not known, ``E-NET-002`` for one without an address.
        """
        if self._stopped:
            raise NodeError(Code.NET_UNREACHABLE, "This node's endpoint has stopped.", peer=peer)
        if self._seen != self._trust.version:
            self._follow_trust()
        link = self._links.get((peer, plane))
        if link is None:
            known = self._trust.find(peer, bulk=plane is Plane.BULK)
            if known is None:
                raise NodeError(
                    Code.NET_UNTRUSTED, f"The certificate of peer {peer} is not known.", peer=peer
                )
            if not known.addresses:
                raise NodeError(Code.NET_UNREACHABLE, f"Peer {peer} has no address.", peer=peer)
            link = self._links[peer, plane] = Link(peer, plane, known, self._tls, self._dial)
        return link

    def _follow_trust(self) -> None:
        self._seen = self._trust.version
        for key, link in list(self._links.items()):
            known = self._trust.find(link.peer, bulk=link.plane is Plane.BULK)
            same = known is not None and known.certificate_pem == link.known.certificate_pem
            if same and known is not None and link.address in known.addresses:
                link.move(known)
            else:
                del self._links[key]
                # calls under way may end where the peer is still the same process
                self._close(link, limits.STALL if same else timedelta())

    def _close(self, link: Link, grace: timedelta) -> None:
        task = asyncio.ensure_future(link.channel.close(grace.total_seconds()))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def stop(self) -> None:
        """Closes every connection; calls under way end with an error."""
        self._stopped = True
        for task in list(self._closing):
            task.cancel()
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(
            *(link.channel.close() for link in links), *self._closing, return_exceptions=True
        )


def _metadata(version: int) -> tuple[tuple[str, str], ...] | None:
    """What is declared beside a call: nothing for version 1, since a header costs as much as a small message."""
    return None if version == 1 else ((VERSION_KEY, str(version)),)


def _target(address: Address) -> str:
    try:
        version = ipaddress.ip_address(address.host).version
    except ValueError:
        return f"dns:///{address}"
    return f"ipv{version}:{address}"
