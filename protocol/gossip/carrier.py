"""The carrier over libp2p: a host in a thread of its own, spoken to from the node's event loop."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from protocol.errors import Code, NodeError
from protocol.gossip.judging import Verdict
from protocol.gossip.limits import START, STOP
from protocol.gossip.neighbours import Neighbour
from protocol.gossip.sub_key import certify_host
from protocol.identity import Identity, Signer, Verifier, verify
from protocol.units import Address, PeerId

Receive = Callable[[str, bytes, PeerId], Verdict]


def _nobody(peer: PeerId) -> bool:
    return False


class HostCarrier:
    """A running libp2p host. Made by :meth:`start`; belongs to the event loop that started it.

    Attributes:
        certificate: The node's word that the host is its own, for the node's record (envelope bytes).
        multiaddrs: Where others reach the host, with its peer id.
        died: Set when the host has ended without being asked to.
        failure: Why.
    """

    def __init__(self, certificate: bytes) -> None:
        self.certificate = certificate
        self.multiaddrs: tuple[str, ...] = ()
        self.died = asyncio.Event()
        self.failure = ""
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[str] = self._loop.create_future()
        self._pending: set[asyncio.Future[Any]] = set()
        self._host: Any = None
        self._trio: Any = None
        self._close: Callable[[], None] | None = None
        self._cancel: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._ended = asyncio.Event()

    @classmethod
    async def start(
        cls,
        identity: Signer,
        *,
        boot: bytes,
        listen: Address,
        receive: Receive,
        announce: str | None = None,
        is_member: Callable[[PeerId], bool] = _nobody,
        verifier: Verifier = verify,
    ) -> "HostCarrier":
        """Makes a host with a fresh key of its own, and listens.

        Args:
            identity: The node; it signs for the host's key.
            boot: The boot number of the node's process.
            listen: IP address and port; port 0 is any free one.
            receive: :meth:`protocol.gossip.Gossip.receive`; called in the host's thread.
            announce: The host name or IP address that others are told instead of the one to listen on.
            is_member: Whether a peer id is a member's, called in the host's thread.
            verifier: Checks nodes' signatures.

        Raises:
            NodeError: ``E-SYS-003`` if libp2p is not installed, ``E-NET-001`` if the host cannot listen.
        """
        sub = Identity.ephemeral()
        carrier = cls(certify_host(identity, sub, boot).raw)
        version = "ip6" if ":" in listen.host else "ip4"
        host = "127.0.0.1" if listen.host == "localhost" else listen.host
        thread = carrier._thread = threading.Thread(
            target=carrier._run,
            args=(
                identity.peer_id,
                sub.seed,
                f"/{version}/{host}/tcp/{listen.port}",
                receive,
                is_member,
                verifier,
            ),
            name="gossip",
            daemon=True,
        )
        thread.start()
        try:
            async with asyncio.timeout(START.total_seconds()):
                address = await asyncio.shield(carrier._ready)
        except BaseException as error:
            await carrier.stop()
            if isinstance(error, TimeoutError):
                raise NodeError(
                    Code.NET_TIMEOUT, f"The gossip host did not start within {START.total_seconds():g} s."
                ) from error
            raise
        if announce is not None:
            address = f"{_part(announce)}/tcp/{address.rpartition('/tcp/')[2]}"
        carrier.multiaddrs = (f"{address}/p2p/{sub.peer_id}",)
        return carrier

    # ---- the carrier's part

    async def join(self, topic: str) -> None:
        """Subscribes to a topic."""
        await self._call("join", topic)

    async def publish(self, topic: str, raw: bytes) -> None:
        """Gives a message of this node to its neighbours; lost if the host has just ended."""
        with suppress(NodeError):
            await self._call("publish", topic, raw)

    async def stop(self) -> None:
        """Closes the host; can be called twice."""
        self._stopping = True
        for end in (self._close, self._cancel):
            if end is not None:
                with suppress(RuntimeError):  # it has ended already
                    end()
            if self._thread is not None and not await self._has_gone(self._thread):
                continue
            return

    async def _has_gone(self, thread: threading.Thread) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP.total_seconds()):
                await self._ended.wait()
                await asyncio.to_thread(thread.join, STOP.total_seconds())
                return True
        return False

    # ---- neighbours

    def know(self, node: PeerId, certificate: bytes, multiaddrs: tuple[str, ...]) -> None:
        """A node's record says where its host listens; it may be called from now on."""
        self._post("know", node, certificate, multiaddrs)

    def forget(self, node: PeerId) -> None:
        """A node is banned or gone: it is not called any more, and cut off."""
        self._post("forget", node)

    async def connect(self, multiaddr: str) -> None:
        """Connects to a host, whoever's it is.

        Raises:
            NodeError: ``E-NET-002``.
        """
        await self._call("connect", multiaddr)

    async def neighbours(self) -> tuple[Neighbour, ...]:
        """Who is connected now."""
        found: tuple[Neighbour, ...] = await self._call("neighbours")
        return found

    async def meshed(self, topic: str, count: int = 1) -> None:
        """Waits until so many neighbours take part in a topic."""
        await self._call("meshed", topic, count)

    # ---- between the two loops

    def _post(self, method: str, *arguments: Any) -> None:
        """Has the host do something quick, without waiting for it."""
        host, there = self._host, self._trio
        if host is not None:
            with suppress(RuntimeError):  # it has ended
                there.run_sync_soon(getattr(host, method), *arguments)

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Has the host do something and waits for what comes of it."""
        host, there = self._host, self._trio
        if host is None:
            raise NodeError(Code.NET_UNREACHABLE, "The gossip host does not run.")
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._pending.add(answer)
        answer.add_done_callback(self._pending.discard)
        try:
            there.run_sync_soon(host.carry_out, method, arguments, lambda *how: self._tell(answer, *how))
        except RuntimeError as error:
            raise NodeError(Code.NET_UNREACHABLE, "The gossip host has ended.") from error
        return await answer

    def _tell(self, answer: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        """In the host's thread: what came of it."""

        def settle() -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)
            else:
                words = f"The gossip host cannot do that: {type(error).__name__}: {error}"
                answer.set_exception(NodeError(Code.NET_UNREACHABLE, words[:400]))

        self._in_loop(settle)

    def _in_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)

    # ---- the thread

    def _run(
        self,
        node: PeerId,
        seed: bytes,
        listen: str,
        receive: Receive,
        is_member: Callable[[PeerId], bool],
        verifier: Verifier,
    ) -> None:
        failure: BaseException | None = None
        try:
            import trio

            from protocol.gossip import host

            scope, close = trio.CancelScope(), trio.Event()
            config = host.HostConfig(node, seed, self.certificate, listen, receive, is_member, verifier)

            def started(made: Any, address: str) -> None:
                self._host, self._trio = made, trio.lowlevel.current_trio_token()
                self._close = lambda: self._trio.run_sync_soon(close.set)
                self._cancel = lambda: self._trio.run_sync_soon(scope.cancel)
                self._in_loop(self._listens, address)

            async def main() -> None:
                with scope:
                    await host.serve(config, started, close.wait)

            trio.run(main)
        except BaseException as error:
            failure = error
        self._host = None
        self._in_loop(self._has_ended, failure)

    def _listens(self, address: str) -> None:
        if self._stopping and self._close is not None:
            self._close()
        if not self._ready.done():
            self._ready.set_result(address)

    def _has_ended(self, failure: BaseException | None) -> None:
        error = _reason(failure)
        self.failure = error.sentence
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # whoever waited may have gone
        for answer in tuple(self._pending):
            if not answer.done():
                answer.set_exception(NodeError(Code.NET_UNREACHABLE, "The gossip host has ended."))
        self._ended.set()
        if not self._stopping:
            self.died.set()


def _reason(failure: BaseException | None) -> NodeError:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    if isinstance(failure, ImportError):
        return NodeError(
            Code.SYS_VERSION,
            f"Gossip needs libp2p, which is not installed ({failure}); the node goes on without it.",
            fix="Install intellect-node with its extra `gossip`.",
        )
    words = "it was stopped" if failure is None else f"{type(failure).__name__}: {failure}"
    code = Code.NET_PORT_IN_USE if isinstance(failure, OSError) else Code.NET_INTERNAL
    return NodeError(code, f"The gossip host ended: {words[:300]}")


def _part(host: str) -> str:
    """The multiaddr of a host name or IP address."""
    if ":" in host:
        return f"/ip6/{host}"
    return f"/ip4/{host}" if host.replace(".", "").isdigit() else f"/dns4/{host}"
