"""What goes through the network helper beside the directory: tunnels, and the question how this node is seen."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from protocol.directory.p2pd import Helper
from protocol.directory.streams import HelperStreams
from protocol.paths.choice import Seen, Way
from protocol.paths.multiaddr import is_circuit
from protocol.paths.pipe import Duplex
from protocol.paths.probe import PROTOCOL, CallBack, ask
from protocol.paths.punch import PROTOCOL as PUNCH
from protocol.paths.punch import Punching
from protocol.paths.tunnel import Dialling, Serving
from protocol.units import Address, PeerId


class Ways:
    """The tunnels of one helper. Belongs to one event loop.

    Args:
        messages: The protobuf module of the helper's messages.
        helper: The helper.
        question: Asks it one question.
        introduce: Makes it know where a peer is; returns what is wrong, or nothing.
        emit: Tells the node: ``{"event": "way", …}`` for a stream that opened, ``no-way`` for one that did not.
        relay: Whether this node is a relay.
        seen: The address that others see this node at, if they do not reach it; else empty.
    """

    def __init__(
        self,
        messages: Any,
        helper: Helper,
        question: Callable[[Any], Awaitable[Any]],
        introduce: Callable[[PeerId], Awaitable[str | None]],
        emit: Callable[[dict[str, Any]], None],
        *,
        relay: bool,
        seen: Callable[[], str],
    ) -> None:
        self._emit = emit
        self._streams = HelperStreams(
            messages,
            door=helper.door,
            listener=helper.incoming,
            brought_to=helper.brought_to,
            ask=question,
            introduce=introduce,
        )
        self._serving: Serving | None = None
        self._punching = Punching(self._streams, seen, self._on_punched, time.monotonic)
        self._dialling = Dialling(self._streams, self._on_way, self._on_failure, punch=self._punching.punch)
        self._call_back = CallBack(time.monotonic, relay=relay)

    async def start(self, data: dict[str, Any] | None) -> None:
        """Begins to take streams.

        Args:
            data: Where the data plane listens: ``host``, ``port``, ``fingerprint``; None for a node without one.
        """
        await self._streams.start()
        await self._streams.serve(PROTOCOL, self._on_question)
        if data is not None:
            here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(data["host"], data["host"])
            self._serving = Serving(Address(here, data["port"]))
            await self._serving.attach(self._streams)
            await self._streams.serve(PUNCH, self._punching.follow)

    async def tunnel(self, peer: PeerId, plane: str) -> list[Any]:
        """The local host and port that lead to a plane of a peer."""
        address = await self._dialling.port(peer, plane)
        return [address.host, address.port]

    async def forget(self, peer: PeerId) -> None:
        """Closes the local ports of a peer."""
        await self._dialling.forget(peer)

    async def ask_seen(self, peer: PeerId, data: dict[str, Any], directory: int) -> Seen | None:
        """Asks one peer how it sees this node; None if it does not say."""
        try:
            stream, _ = await self._streams.open(peer, PROTOCOL)
            fingerprint = bytes.fromhex(data["fingerprint"])
            return await ask(peer, stream, data=data["port"], directory=directory, fingerprint=fingerprint)
        except (OSError, TimeoutError, ValueError):
            return None

    async def stop(self) -> None:
        """Ends everything."""
        await self._dialling.stop()
        await self._streams.stop()

    async def _on_punched(self, peer: PeerId, way: str, connection: Duplex) -> None:
        assert self._serving is not None
        await self._serving.take(peer, way, connection)

    async def _on_question(self, peer: PeerId, way: str, stream: Duplex) -> None:
        parts = way.split("/")
        host = parts[2] if parts[1] in ("ip4", "ip6") and not is_circuit(way) else None
        await self._call_back.answer(peer, host, stream)

    def _on_way(self, peer: PeerId, plane: str, way: Way, address: str) -> None:
        self._emit({"event": "way", "peer": peer, "plane": plane, "way": way.value, "address": address})

    def _on_failure(self, peer: PeerId, plane: str, reason: str) -> None:
        self._emit({"event": "no-way", "peer": peer, "plane": plane, "reason": reason[:300]})
