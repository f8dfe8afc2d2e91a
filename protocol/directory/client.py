"""The node's side of the directory: publishes and reads records through the directory process."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from protocol.directory.addresses import (
    announce_multiaddr,
    check_peer_address,
    check_port_free,
    listen_multiaddr,
)
from protocol.directory.frames import from_text, to_text
from protocol.directory.limits import BOOTSTRAP, CLOCK_TOLERANCE, STARTUP
from protocol.directory.link import Link
from protocol.directory.p2pd import default_program
from protocol.directory.records import SHELVES, Guard, PeerRecord
from protocol.envelope import Sealed, seal
from protocol.errors import Code, NodeError
from protocol.identity import Identity, peer_id_of
from protocol.paths.choice import Seen
from protocol.paths.limits import RELAY_BYTES, RELAY_CIRCUITS, RELAY_RESERVATIONS, RELAY_TIME
from protocol.units import Address, Bytes, PeerId, RunId

_LOOPBACK = Address("127.0.0.1", 0)


def _ignore(_: object) -> None:
    pass


@dataclass(frozen=True)
class DataPlane:
    """Where this node's data plane listens and by what it is known.

    Attributes:
        address: Its address on this machine.
        fingerprint: SHA-256 of its certificate.
    """

    address: Address
    fingerprint: bytes


@dataclass(frozen=True)
class RelayService:
    """What a relay gives: each bound is per peer or per connection, so that none takes the others' part.

    Attributes:
        circuits: Connections at once for one peer.
        reservations: Peers that have a place.
        most: Bytes in each direction of one connection.
        time: How long one connection lasts.
    """

    circuits: int = RELAY_CIRCUITS
    reservations: int = RELAY_RESERVATIONS
    most: Bytes = RELAY_BYTES
    time: timedelta = RELAY_TIME


class Directory:
    """A running directory. Made by :meth:`start`; belongs to the event loop and thread that started it.

    Attributes:
        multiaddrs: Where others reach this directory; any of them is a way in.
        seen: How peers saw this node when they were last asked.
    """

    def __init__(self, identity: Identity, clock: Callable[[], float], link: Link) -> None:
        self.multiaddrs: tuple[str, ...] = ()
        self.seen: tuple[Seen, ...] = ()
        self._identity = identity
        self._clock = clock
        self._link = link
        self._guard = Guard({}, self.now)
        self._published: dict[str, Sealed[PeerRecord]] = {}

    @classmethod
    async def start(
        cls,
        identity: Identity,
        *,
        namespace: str,
        folder: Path,
        listen: Address = _LOOPBACK,
        announce: str | None = None,
        bootstrap: tuple[str, ...] = (),
        hints: tuple[str, ...] = (),
        progress: Callable[[str], None] = _ignore,
        startup: timedelta = STARTUP,
        clock: Callable[[], float] = time.time,
        program: Path | None = None,
        data: DataPlane | None = None,
        reach: str = "auto",
        relays: tuple[str, ...] = (),
        serve_relay: RelayService | None = None,
        told: Callable[[dict[str, Any]], None] = _ignore,
    ) -> "Directory":
        """Starts the directory process and joins the swarm.

        Args:
            identity: The node's identity; the directory has the same peer id.
            namespace: Names the shelves. Every peer of one swarm uses the same; records of others are not kept.
            folder: A folder of this node alone, made if missing. Its path may be of any length.
            listen: IP address and port; port 0 is any free one.
            announce: What others are told instead: ``host``, ``host:port`` or a multiaddr.
            bootstrap: Multiaddrs of peers, of which at least one has to answer; none founds a swarm.
            hints: Multiaddrs of peers to try in the background, such as those known before a restart.
            progress: Is told in a sentence what the start is doing, at least every two seconds while it waits.
            startup: How long the network helper may take to start.
            clock: Gives Unix seconds by the machine; records expire by :meth:`now`.
            program: Another network helper than the one hivemind brings.
            data: The data plane to which tunnels of others lead, and which peers are asked to call back.
            reach: ``auto`` asks the bootstrap peers whether they reach this node; ``direct`` or ``relayed`` says it.
            relays: Multiaddrs of relays, beside the bootstrap peers, for a node that others do not reach.
            serve_relay: Makes this node a relay for others.
            told: Is told of each tunnel: ``{"event": "way", "peer", "plane", "way", "address"}`` when it opened,
                ``{"event": "no-way", "peer", "plane", "reason"}`` when it could not.

        Raises:
            NodeError: ``E-CFG-003`` for a malformed address, ``E-NET-001`` for a taken port, ``E-STO-002`` for a folder
                that cannot be used, ``E-DIR-002`` within seconds if no bootstrap peer answers, ``E-DIR-001`` with the
                helper's own words for everything else.
        """
        listening = listen_multiaddr(listen)
        config: dict[str, Any] = {
            "seed": to_text(identity.seed),
            "namespace": namespace,
            "folder": str(_usable(folder)),
            "listen": listening,
            "announce": announce_multiaddr(announce, listen) if announce is not None else None,
            "bootstrap": [check_peer_address(address) for address in bootstrap],
            "hints": [check_peer_address(address) for address in hints],
            "startup": startup.total_seconds(),
            "program": str(program or default_program()),
            "operator": None,
            "skew": clock() - time.time(),
            "reach": reach,
            "relays": [check_peer_address(address) for address in relays],
            "data": None,
            "serves": None,
        }
        if data is not None:
            config["data"] = {**data.address._asdict(), "fingerprint": data.fingerprint.hex()}
        if serve_relay is not None:
            given = serve_relay
            config["serves"] = [given.circuits, given.reservations, given.most, given.time.total_seconds()]
        check_port_free(listen)
        directory = cls(identity, clock, Link(progress, told))
        try:
            ready = await directory._link.start(config, startup + 2 * BOOTSTRAP)
        except BaseException:
            await directory.stop()
            raise
        directory.multiaddrs = tuple(ready["multiaddrs"])
        directory.seen = tuple(Seen(**seen) for seen in ready["seen"])
        return directory

    @property
    def alive(self) -> bool:
        """Whether the directory runs."""
        return self._link.alive

    def now(self) -> float:
        """Unix seconds as the peers see them: the machine's clock, corrected to the median of the members'."""
        return self._clock() + self._link.clock_offset

    @property
    def clock_warning(self) -> str | None:
        """A sentence if the machine's clock is off by more than 30 s, else None."""
        return self._link.clock_warning

    @property
    def died(self) -> asyncio.Event:
        """Set when the directory has ended without :meth:`stop`.

        Nothing of it is left then, so that the node can start another in the same folder and on the same port.
        """
        return self._link.died

    @property
    def failure(self) -> NodeError | None:
        """What the directory died of."""
        return self._link.failure

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the directory process and its network helper, as far as they run."""
        return tuple(pid for pid in (self._link.pid, self._link.helper) if pid is not None)

    @property
    def refused(self) -> int:
        """Records that :meth:`records` found invalid so far."""
        return self._guard.refused

    async def publish(
        self, sealed: Sealed[PeerRecord], *, shelf: str, lifetime: timedelta | None = None
    ) -> None:
        """Puts a record of this node on a shelf and keeps it there until it expires.

        Publish the next one before that; it has to expire later than the one before, which it replaces everywhere.

        Args:
            sealed: The record, sealed as a statement by this node.
            shelf: ``members`` or ``newcomers``.
            lifetime: If given, the record is refused if it is valid for longer from now on.

        Raises:
            NodeError: ``E-DIR-004`` if the record breaks a rule or no node took it, ``E-DIR-003`` if it died.
        """
        self._guard.check(sealed.raw, peer=self._identity.peer_id, shelf=_known(shelf))
        left = sealed.message.expires_at - self.now()
        if lifetime is not None and left > lifetime.total_seconds() + 1:
            sentence = (
                f"The record is valid for {left:.0f} s more, longer than {lifetime.total_seconds():.0f} s."
            )
            raise NodeError(Code.DIR_RECORD, sentence)
        before = self._published.get(shelf)
        if before is not None and before.message.issued_at > self.now() + CLOCK_TOLERANCE.total_seconds():
            before = None  # this machine's clock was ahead when it was made: no peer has taken it
        if before is not None and sealed.message.expires_at <= before.message.expires_at:
            raise NodeError(
                Code.DIR_RECORD, "The record does not expire later than the one that it should replace."
            )
        if not await self._link.call("publish", shelf=shelf, raw=to_text(sealed.raw)):
            sentence = (
                f"No node took the record for {shelf}: one that expires later is there, or the shelf is full."
            )
            raise NodeError(Code.DIR_RECORD, sentence)
        self._published[shelf] = sealed

    async def records(
        self, shelf: str, *, tolerance: timedelta = CLOCK_TOLERANCE
    ) -> tuple[Sealed[PeerRecord], ...]:
        """Every valid record of a shelf, the one that expires last first, so that peers that are gone come last.

        Args:
            shelf: ``members`` or ``newcomers``.
            tolerance: How long beyond its expiry a record is still returned, since clocks differ.

        Raises:
            NodeError: ``E-DIR-003`` if the directory died.
        """
        valid = []
        oldest = self.now() - tolerance.total_seconds()
        for text in await self._link.call("records", shelf=_known(shelf)):
            try:
                raw = from_text(text)
                record = self._guard.check(raw, peer=self._guard.open(raw).sender, shelf=shelf)
            except (NodeError, ValueError):
                self._guard.refused += 1
                continue
            if record.message.expires_at > oldest and not record.message.withdrawn:
                valid.append(record)
        return tuple(sorted(valid, key=lambda record: record.message.expires_at, reverse=True))

    async def withdraw(self, shelf: str | None = None) -> None:
        """Takes this node's record off one shelf, or off all: others stop seeing it at once.

        Raises:
            NodeError: ``E-DIR-003`` if the directory died.
        """
        for name in [shelf] if shelf is not None else list(self._published):
            before = self._published.get(name)
            if before is None or before.message.withdrawn:
                continue
            said = before.message
            gone = replace(
                said,
                withdrawn=True,
                issued_at=max(self.now(), said.issued_at + 0.001),
                expires_at=said.expires_at + 0.001,
                multiaddrs=(),
                certificate_pem=b"",
            )
            sequence = before.sequence + 1
            run = RunId(said.run) if said.run else None
            sealed = seal(self._identity, run, gone, boot=before.boot, sequence=sequence)
            with contextlib.suppress(NodeError):  # one that has expired needs no withdrawing
                await self.publish(sealed, shelf=name)

    async def set_operator(self, public_key: bytes | None, admission: type[Any] | None = None) -> None:
        """From now on only those whom the operator admitted count as members, here and in what this node stores.

        Args:
            public_key: The operator's Ed25519 key, 32 bytes; None lets everyone in again.
            admission: The message class of admissions: a statement of the operator, in the record's run, whose
                attribute ``peer`` is the admitted peer. Its module is imported by the directory process, so it
                should import little.
        """
        if public_key is None:
            operator = None
            self._guard.set_operator(None, None)
        else:
            if admission is None:
                raise ValueError("an operator needs the class of its admissions")
            peer = peer_id_of(public_key)
            operator = {"peer": peer, "module": admission.__module__, "name": admission.__name__}
            self._guard.set_operator(peer, admission)
        await self._link.call("operator", operator=operator)

    async def remember(self, addresses: tuple[str, ...]) -> None:
        """Names peers that the directory may connect to when it loses its neighbours."""
        await self._link.call("remember", addresses=[check_peer_address(address) for address in addresses])

    async def refresh_multiaddrs(self) -> tuple[str, ...]:
        """Asks again where others reach this directory: behind a router that becomes known only after a while."""
        self.multiaddrs = tuple(await self._link.call("multiaddrs"))
        return self.multiaddrs

    async def ask_seen(self) -> tuple[Seen, ...]:
        """Asks some connected peers how they see this node.

        Raises:
            NodeError: ``E-DIR-003`` if the directory died.
        """
        self.seen = tuple(Seen(**seen) for seen in await self._link.call("seen"))
        return self.seen

    async def tunnel(self, peer: PeerId, plane: str) -> Address:
        """The local address whose connections reach a peer's data plane through the network helper.

        Args:
            peer: The peer.
            plane: ``control`` or ``bulk``: each has a stream of its own.

        Raises:
            NodeError: ``E-DIR-003`` if the directory died.
        """
        host, port = await self._link.call("tunnel", peer=peer, plane=plane)
        return Address(host, port)

    async def forget_tunnel(self, peer: PeerId) -> None:
        """Closes the local addresses of a peer; connections under way go on.

        Raises:
            NodeError: ``E-DIR-003`` if the directory died.
        """
        await self._link.call("forget", peer=peer)

    async def stop(self) -> None:
        """Ends the directory, leaving nothing here; what was not withdrawn stays with others until it expires."""
        await self._link.stop()


def _known(shelf: str) -> str:
    if shelf not in SHELVES:
        raise ValueError(f"{shelf!r} is no shelf: use one of {', '.join(SHELVES)}")
    return shelf


def _usable(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise NodeError(
            Code.STO_UNWRITABLE, f"The folder {folder} cannot be used: {error.strerror}."
        ) from error
    return folder.resolve()
