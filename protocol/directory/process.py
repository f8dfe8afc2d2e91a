"""The directory process: one node of hivemind's DHT. The only module that imports hivemind; nothing imports this one.

Started by :mod:`protocol.directory.client` as ``python -m protocol.directory.process --link FD --parent PID``, because
hivemind and libp2p cannot be imported in one process. It ends when its node does, whatever way that ends.
"""

import argparse
import asyncio
import contextlib
import importlib
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from protocol.clock import PeerClock, difference
from protocol.directory.addresses import peer_in, resolved, without_peer
from protocol.directory.footing import Footing
from protocol.directory.frames import error_frame, from_text, read_frame, to_text, write_frame
from protocol.directory.limits import (
    CLOCK_GRAIN,
    CLOCK_PEERS,
    MAINTAIN_EVERY,
    MAX_RECORDS,
    MAX_SHELF,
    RECONNECT_EVERY,
    REPLICAS,
    RESTORE_EVERY,
    RPC,
)
from protocol.directory.narrow import import_narrowly
from protocol.directory.records import SHELVES, Guard, dht_expiry, shelf_key
from protocol.directory.serving import first, serve
from protocol.directory.validation import Validator, prune
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.parent import die_with_parent
from protocol.units import PeerId

import_narrowly()

import hivemind.dht.node as dht_node
import hivemind.dht.protocol as dht_protocol
import hivemind.dht.routing as dht_routing
import hivemind.utils.timed_storage as timed_storage
from hivemind.dht.routing import DHTID
from hivemind.dht.storage import DHTLocalStorage, DictionaryDHTValue
from hivemind.p2p import P2P, PeerID
from hivemind.proto import dht_pb2, p2pd_pb2
from hivemind.utils.multiaddr import Multiaddr


class _BoundedStorage(DHTLocalStorage):  # type: ignore[misc]
    """What this node stores for others: two shelves of bounded size."""

    bounds: dict[Any, int] = {}  # noqa: RUF012  set once, before hivemind makes any storage

    def store(self, key: Any, value: Any, expiration_time: float, subkey: Any = None) -> bool:
        """Stores a shelf's record; refuses anything that is not one."""
        if subkey is None and not isinstance(value, DictionaryDHTValue):
            return False
        return bool(super().store(key, value, expiration_time, subkey))

    def store_subkey(self, key: Any, subkey: Any, value: bytes, expiration_time: float) -> bool:
        """Stores a record unless its shelf is full."""
        if key not in self.bounds:
            return False
        shelf = self.get(key)
        if shelf is not None and subkey not in shelf.value:
            held = [item.value for _, item in shelf.value.items()]
            if len(held) >= self.bounds[key] or sum(map(len, held)) + len(value) > MAX_SHELF:
                return False
        return bool(super().store_subkey(key, subkey, value, expiration_time))


def _tell_time(now: Callable[[], float]) -> None:
    """What hivemind takes for the time, by which records expire and which peers are told."""
    for module in (dht_node, dht_protocol, dht_routing, timed_storage):
        module.get_dht_time = now


class Node:
    """One DHT node with its helper."""

    def __init__(self, config: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
        self._config = config
        self._emit = emit
        self._identity = Identity(from_text(config["seed"]))
        self._namespace = str(config["namespace"])
        self._keys = {shelf: DHTID.generate(source=shelf_key(self._namespace, shelf)) for shelf in SHELVES}
        skew = float(config["skew"])
        self._clock = PeerClock(lambda: time.time() + skew)
        self._told_offset = 0.0
        _tell_time(self._clock.now)
        self._guard = Guard({key.to_bytes(): shelf for shelf, key in self._keys.items()}, self._clock.now)
        self._set_operator(config["operator"])
        self._own: dict[str, tuple[bytes, float]] = {}
        self._footing = Footing(config, self._identity, p2pd_pb2, emit, self._introduce)
        self._dht: Any = None
        self._maintenance: asyncio.Task[None] | None = None

    async def answer(self, frame: dict[str, Any]) -> Any:
        """Performs one call of the node."""
        match frame["op"]:
            case "publish":
                return await self.publish(frame["shelf"], from_text(frame["raw"]))
            case "records":
                return await self.records(frame["shelf"])
            case "multiaddrs":
                return await self._footing.multiaddrs()
            case "operator":
                return self.set_operator(frame["operator"])
            case "remember":
                return self.remember(frame["addresses"])
            case "tunnel":
                return await self._footing.ways.tunnel(PeerId(frame["peer"]), frame["plane"])
            case "forget":
                return await self._footing.ways.forget(PeerId(frame["peer"]))
            case "seen":
                return await self._footing.ask_seen(list(await self._footing.control.connected()))
            case other:
                raise ValueError(f"no operation {other!r}")

    def progress(self, sentence: str) -> None:
        """Tells the node what the start is doing."""
        self._emit({"event": "progress", "text": sentence})

    async def start(self) -> dict[str, Any]:
        """Starts helper and DHT node, joins the bootstrap peers; returns the ``ready`` event.

        Raises:
            NodeError: ``E-DIR-001`` or ``E-DIR-002``.
        """
        footing = self._footing
        joined = await footing.find(lambda: self._join(self._config["bootstrap"]))
        assert footing.helper is not None
        p2p = await P2P.replicate(Multiaddr(f"/unix{footing.helper.door}"))
        _BoundedStorage.bounds = {key: MAX_RECORDS[shelf] for shelf, key in self._keys.items()}
        dht_protocol.DHTLocalStorage = _BoundedStorage
        dht_protocol.DHTProtocol._validate_dictionary = prune
        try:
            self._dht = await dht_node.DHTNode.create(
                p2p=p2p,
                # the same place after a restart, so that one peer never counts as two replicas
                node_id=DHTID.generate(source=f"{self._namespace}/{self._identity.peer_id}"),
                initial_peers=joined or None,
                num_replicas=REPLICAS,
                wait_timeout=RPC.total_seconds(),
                record_validator=Validator(self._guard),
                strict=False,  # else it refuses peers whose clock is off by more than 3 s
                cache_locally=False,  # reads ask for the latest, so a cache would only hold stale copies
                cache_nearest=0,
                cache_on_store=False,
                cache_refresh_before_expiry=0,
            )
        except RuntimeError as error:
            names = ", ".join(joined)
            sentence = f"The bootstrap peer {names} accepts connections but does not answer as a directory."
            raise NodeError(Code.DIR_BOOTSTRAP, sentence) from error
        self.remember(self._config["hints"])
        if joined:
            await self._agree_on_time({peer_in(address) for address in joined})
        else:
            self._clock.found()
        self._maintenance = asyncio.create_task(self._maintain())
        return {
            "event": "ready", "multiaddrs": await footing.multiaddrs(), "neighbours": self._neighbours(),
            "seen": [vars(seen) for seen in footing.seen],
        }  # fmt: skip

    async def _introduce(self, peer: PeerId) -> str | None:
        addresses = self._guard.addresses.get(peer)
        if addresses is None:
            return "nobody knows where it is"
        return await self._connect(peer, addresses)

    async def ended(self) -> str:
        """Waits until the helper ends by itself, and says how."""
        assert self._footing.helper is not None
        return await self._footing.helper.ended()

    async def stop(self) -> None:
        """Ends the helper."""
        if self._maintenance is not None:
            self._maintenance.cancel()
        await self._footing.end()

    async def publish(self, shelf: str, raw: bytes) -> bool:
        """Stores an own record now and again from time to time. Returns whether any node took it."""
        self._own[shelf] = (raw, dht_expiry(self._guard.open(raw).message))
        # hivemind's answer is that of the node that answered last: a refusal does not mean that nobody took it
        return await self._store(shelf) or to_text(raw) in await self.records(shelf)

    async def records(self, shelf: str) -> list[str]:
        """Every valid record of a shelf."""
        found = await self._dht.get(shelf_key(self._namespace, shelf), latest=True)
        if found is None or not isinstance(found.value, dict):
            return []
        return [to_text(item.value) for item in found.value.values() if isinstance(item.value, bytes)]

    def set_operator(self, operator: dict[str, str] | None) -> None:
        """From now on the members' shelf holds only those whom this peer admitted; the others are dropped."""
        self._set_operator(operator)
        key = self._keys["members"]
        shelf = self._dht.protocol.storage.get(key)
        if shelf is not None:
            prune(self._dht.protocol, key.to_bytes(), shelf.value)

    def remember(self, addresses: list[str]) -> None:
        """Takes note of peers that may be asked when neighbours are lost."""
        for address in addresses:
            self._guard.remember(peer_in(address), (address,))

    def _set_operator(self, operator: dict[str, str] | None) -> None:
        if operator is None:
            self._guard.set_operator(None, None)
        else:
            admission = getattr(importlib.import_module(operator["module"]), operator["name"])
            self._guard.set_operator(PeerId(operator["peer"]), admission)

    def _neighbours(self) -> list[str]:
        return [peer.to_base58() for peer in self._dht.protocol.routing_table.peer_id_to_uid]

    async def _join(self, bootstrap: list[str]) -> list[str]:
        """Connects to the bootstrap peers; returns those that were reached."""
        wanted = [address for address in bootstrap if peer_in(address) != self._identity.peer_id]
        if not wanted:
            return []
        self.progress(f"asking {len(wanted)} bootstrap peer{'s' if len(wanted) > 1 else ''}")
        wrong = await asyncio.gather(*(self._connect(peer_in(address), (address,)) for address in wanted))
        joined = [address for address, problem in zip(wanted, wrong, strict=True) if problem is None]
        self.remember(wanted)
        if not joined:
            told = "; ".join(f"{address}: {problem}" for address, problem in zip(wanted, wrong, strict=True))
            raise NodeError(
                Code.DIR_BOOTSTRAP, f"No bootstrap peer answers. {told}.", peer=peer_in(wanted[0])
            )
        return joined

    async def _connect(self, peer: str, addresses: tuple[str, ...]) -> str | None:
        try:
            plain = [text for address in addresses for text in await resolved(without_peer(address))]
            return await self._footing.control.connect(peer, plain)
        except OSError as error:
            return f"its name cannot be resolved: {error.strerror}"
        except (ValueError, LookupError) as error:
            return f"not a usable address: {error}"

    async def _store(self, shelf: str) -> bool:
        raw, expiry = self._own[shelf]
        key = shelf_key(self._namespace, shelf)
        return bool(await self._dht.store(key, raw, expiry, subkey=str(self._identity.peer_id)))

    async def _maintain(self) -> None:
        """Replaces copies and neighbours that were lost."""
        known: set[str] = set()
        stored = connected = time.monotonic()
        while True:
            await asyncio.sleep(MAINTAIN_EVERY.total_seconds() * random.uniform(0.8, 1.2))
            now, neighbours = time.monotonic(), set(self._neighbours())
            with contextlib.suppress(Exception):  # what fails here is tried again the next time
                if now - connected > RECONNECT_EVERY.total_seconds():
                    connected = now
                    await self._reconnect(neighbours)
                if neighbours != known or now - stored > RESTORE_EVERY.total_seconds():
                    known, stored = neighbours, now
                    if self._guard.checks_admissions:  # else anyone could call itself a member
                        await self._agree_on_time(neighbours & self._guard.members)
                    for shelf in list(self._own):
                        await self._store(shelf)

    async def _agree_on_time(self, peers: set[str]) -> None:
        """Asks peers for their time, and goes by their median; tells the node how far its machine's clock is off."""

        async def ask(peer: str) -> float | None:
            asked = self._clock.now()
            try:
                stub = self._dht.protocol.get_stub(PeerID.from_base58(peer))
                answer = await stub.rpc_ping(dht_pb2.PingRequest(), timeout=RPC.total_seconds())
            except Exception:  # hivemind's many kinds; a peer that does not answer has no say
                return None
            return difference(answer.dht_time, asked, self._clock.now())

        chosen = random.sample(sorted(peers), min(CLOCK_PEERS, len(peers)))
        answers = await asyncio.gather(*map(ask, chosen))
        self._clock.agree(answer for answer in answers if answer is not None)
        offset = -self._clock.wrong_by
        if abs(offset - self._told_offset) > CLOCK_GRAIN.total_seconds():
            self._told_offset = offset
            self._emit({"event": "clock", "offset": offset, "warning": self._clock.warning})

    async def _reconnect(self, neighbours: set[str]) -> None:
        lost = [
            peer
            for peer in self._guard.addresses
            if peer not in neighbours and peer != self._identity.peer_id
        ]
        for peer in random.sample(lost, min(3, len(lost))):
            if await self._connect(peer, self._guard.addresses[peer]) is None:
                await self._dht.protocol.call_ping(PeerID.from_base58(peer))


async def _run(link: int) -> int:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=link))

    def emit(frame: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):
            write_frame(writer, frame)

    config = await read_frame(reader)
    if config is None:
        return 0
    node = Node(config, emit)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)

    async def live() -> None:
        emit(await node.start())
        raise NodeError(Code.DIR_DIED, await node.ended())

    try:
        await first(live(), serve(node.answer, reader, emit), stopped.wait())
        return 0
    except NodeError as error:
        emit({"event": "failed", **error_frame(error)})
        return 1
    finally:
        await node.stop()
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()


def main() -> int:
    """Runs the process until its node closes the link, or ends."""
    parser = argparse.ArgumentParser(prog="protocol.directory.process")
    parser.add_argument("--link", type=int, required=True, help="file descriptor of the node's socket")
    parser.add_argument("--parent", type=int, required=True, help="process id of the node")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    return asyncio.run(_run(arguments.link))


if __name__ == "__main__":
    sys.exit(main())
