"""Questions to the network helper."""

import asyncio
import contextlib
from typing import Any

from protocol.directory.limits import BOOTSTRAP
from protocol.directory.streams import read_message, write_message
from protocol.paths.multiaddr import from_bytes, is_circuit, peer_bytes, peer_of, to_bytes
from protocol.units import PeerId


class Control:
    """A few control connections to the helper.

    Args:
        messages: The protobuf module of the helper's messages.
    """

    def __init__(self, messages: Any) -> None:
        self._messages = messages
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._running: set[asyncio.Task[Any]] = set()

    async def open(self, door: str, count: int = 4) -> None:
        """Opens the connections."""
        for _ in range(count):
            self._free.put_nowait(await asyncio.open_unix_connection(door))

    async def ask(self, request: Any) -> Any:
        """One question; if the caller gives up waiting, the connection is used again only after the answer."""
        task = asyncio.create_task(self._exchange(request))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _exchange(self, request: Any) -> Any:
        reader, writer = await self._free.get()
        await write_message(writer, request)
        response = self._messages.Response()
        await read_message(reader, response)
        self._free.put_nowait((reader, writer))
        return response

    async def addresses(self) -> list[str]:
        """The multiaddrs that the helper listens on or was told to announce."""
        response = await self.ask(self._messages.Request(type=self._messages.Request.IDENTIFY))
        return _texts(response.identify.addrs)

    async def connected(self) -> set[PeerId]:
        """The peers that the helper has a connection to, other than through a relay."""
        response = await self.ask(self._messages.Request(type=self._messages.Request.LIST_PEERS))
        found = set()
        for peer in response.peers:
            with contextlib.suppress(ValueError):
                if not any(map(is_circuit, _texts(peer.addrs))):
                    found.add(peer_of(peer.id))
        return found

    async def connect(self, peer: str, addresses: list[str]) -> str | None:
        """Connects to a peer; returns what is wrong, or nothing."""
        raw = [to_bytes(address) for address in addresses]
        wanted = self._messages.ConnectRequest(peer=peer_bytes(PeerId(peer)), addrs=raw)
        try:
            request = self._messages.Request(type=self._messages.Request.CONNECT, connect=wanted)
            response = await asyncio.wait_for(self.ask(request), BOOTSTRAP.total_seconds())
        except TimeoutError:
            return f"no answer within {BOOTSTRAP.total_seconds():.0f} s"
        if response.type == self._messages.Response.ERROR:
            words = " ".join(response.error.msg.split())
            return words.rpartition("] ")[2][-300:]  # without the dial's preamble
        return None

    def close(self) -> None:
        """Closes the connections."""
        for task in self._running:
            task.cancel()
        while not self._free.empty():
            self._free.get_nowait()[1].transport.abort()


def _texts(addresses: Any) -> list[str]:
    """Multiaddrs as text, without those of kinds that nobody uses here."""
    texts = []
    for address in addresses:
        with contextlib.suppress(ValueError):
            texts.append(from_bytes(address))
    return texts
