"""A node among its peers: directory, trust and data plane, kept in step by a loop that reads records."""

import asyncio
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from diloco.member.admission import Admission
from diloco.member.setting import Emit
from node.gossip import NodeGossip
from node.machine import software_version
from node.membership import Sorted, given_roles, sort
from node.remembered import Remembered
from node.sightings import Sightings
from node.ways import Ways, outward
from protocol.directory import DataPlane, Directory, PeerRecord, RelayService
from protocol.directory.limits import CLOCK_TOLERANCE
from protocol.envelope import Sealed, seal
from protocol.errors import Code, NodeError
from protocol.identity import Identity, public_key_of
from protocol.paths import Reach
from protocol.paths.limits import PROBE_AGAIN
from protocol.paths.multiaddr import is_circuit
from protocol.rpc import Endpoint
from protocol.tls import make_certificate
from protocol.trust import Trust
from protocol.units import Address, Bytes, PeerId, RunId

NAMESPACE = "intellect-node"
"""Name of the shelves in the directory; the records on them name their run."""

PROTOCOL = 1
"""Version of the protocol that this package speaks."""

_LOOK = timedelta(seconds=1)
_LIFETIME = timedelta(minutes=4)
_RENEW = timedelta(minutes=1)
_REMEMBER = timedelta(minutes=1)
_RELAY_ROLE = "relay"


_GIVEN_ROLES = ("trainer", "rollout", "validator")
"""Roles that an admission names."""


class Network:
    """This node's directory record, whom it trusts, and its end of the data plane.

    Args:
        identity: Who the node is.
        folder: Its data directory.
        listen: Where the data plane listens.
        directory_port: Where the directory listens, 0 for any.
        announce: What others dial instead of the listening host; empty finds it out.
        upload: Limit for bulk bytes sent per second.
        download: Limit for bulk bytes fetched per second.
        roles: What the node does, for its record.
        emit: The event log.
        gossip_port: Where the gossip host listens, 0 for any; None for a node without one.
        reach: ``auto`` finds out whether others reach this node; ``direct`` or ``relayed`` says it.
        relay: Makes this node a relay for others.
        program: Another network helper.

    Attributes:
        ways: How this node is reached, and by which way it reaches each peer.
        taking_part: Who takes part in the round under way; None while this node does not know.
        twin: Boot number and start of another process that publishes under this node's key, where one was seen.
    """

    def __init__(
        self,
        identity: Identity,
        folder: Path,
        *,
        listen: Address,
        directory_port: int,
        announce: str,
        upload: Bytes | None,
        download: Bytes | None = None,
        roles: tuple[str, ...],
        emit: Emit,
        gossip_port: int | None = None,
        reach: str = "auto",
        relay: RelayService | None = None,
        program: Path | None = None,
    ) -> None:
        self.identity, self.me = identity, identity.peer_id
        self.roles = roles if relay is None else tuple(sorted({*roles, _RELAY_ROLE}))
        self._reach, self._relay, self._program = reach, relay, program
        self._relays_tried: tuple[str, ...] = ()
        self._probed = 0.0
        self.trust = Trust()
        announced = announce.rsplit(":", 1)[0]
        self.ways = Ways(self.trust, emit, outward=outward(listen.host), announced=announced, wanted=reach)
        self.boot = secrets.token_bytes(16)
        self._folder, self._emit = folder, emit
        self._remembered = Remembered(folder)
        self._sightings = Sightings()
        self._listen, self._directory_port, self._announce = listen, directory_port, announce
        self._tls = make_certificate(identity.peer_id)
        self.endpoint = Endpoint(
            identity, self._tls, self.trust, run=None, boot=self.boot, listen=listen, upload=upload, download=download,
            audience=self._belongs,
        )  # fmt: skip
        self.endpoint.path_of = self.ways.to
        self.directory: Directory | None = None
        self._clock_wrong = False
        self.gossip: NodeGossip | None = None
        self._gossip_port = gossip_port
        self.members: dict[PeerId, PeerRecord] = {}
        self.newcomers: dict[PeerId, PeerRecord] = {}
        self.round = 0
        self.banned: frozenset[str] = frozenset()
        self.taking_part: frozenset[str] | None = None
        self.twin: tuple[bytes, int] | None = None
        self._started = 0
        self.run: RunId | None = None
        self._operator: PeerId | None = None
        self._admission = b""
        self._published = 0.0
        self._remember_until = 0.0
        self._bootstrap: tuple[str, ...] = ()

    # ---- starting and stopping

    async def start(self, bootstrap: tuple[str, ...], *, resumes: bool = False) -> None:
        """Listen, start the directory, find peers.

        Args:
            bootstrap: Multiaddresses of which one has to answer.
            resumes: Whether this node has been in the run before. Then nobody has to answer: if it knows other peers,
                they and those of ``bootstrap`` are tried for as long as it takes.

        Raises:
            NodeError: ``E-NET-001``: a port is taken; ``E-DIR-002``: nobody answers; ``E-DIR-001``: the helper fails.
        """
        await self.endpoint.start()
        self._bootstrap = bootstrap
        known = [address for address in self._remembered.peers() if not address.endswith(self.me)]
        await self._start_directory(() if known and resumes else bootstrap)

    async def _start_directory(self, bootstrap: tuple[str, ...] = ()) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert self.endpoint.address is not None
        self.ways.begin_anew()
        self._relays_tried = self._known_relays()
        self.directory = await Directory.start(
            self.identity,
            namespace=NAMESPACE,
            folder=self._folder / "directory",
            listen=Address(self._listen.host, self._directory_port),
            announce=self._announce or None,
            bootstrap=bootstrap,
            hints=tuple(dict.fromkeys((*self._bootstrap, *self._remembered.peers()))),
            progress=lambda sentence: self._emit("directory.starting", sentence=sentence),
            program=self._program,
            data=DataPlane(self.endpoint.address, self._tls.fingerprint),
            reach=self._reach,
            relays=self._relays_tried,
            serve_relay=self._relay,
            told=self.ways.on_tunnel,
        )
        self._probed = loop.time()
        self.ways.take_stand(self.directory)
        self._emit(
            "directory.ready", multiaddrs=list(self.directory.multiaddrs), seconds=loop.time() - began,
            pids=list(self.directory.pids),
        )  # fmt: skip
        if self._operator is not None:
            await self.directory.set_operator(public_key_of(self._operator), Admission)

    async def stop(self) -> None:
        """Withdraw the record and close everything."""
        if self.gossip is not None:
            await self.gossip.stop()
        if self.directory is not None:
            with suppress(NodeError, TimeoutError):
                async with asyncio.timeout(3):
                    await self.directory.withdraw()
            await self.directory.stop()
        await self.endpoint.stop(timedelta(seconds=1))

    def belong_to(self, run: RunId, operator: PeerId) -> None:
        """From now on this node is of that run: envelopes and records of others are not for it."""
        self.run, self.endpoint.run, self._operator = run, run, operator

    async def admitted(self, admission: bytes) -> None:
        """This node has its admission: it shows it in its record."""
        assert self.directory is not None and self._operator is not None
        self._admission = admission
        await self.directory.set_operator(public_key_of(self._operator), Admission)
        await self.directory.withdraw("newcomers")
        await self.publish()
        await self._start_gossip()

    async def readmitted(self, admission: bytes) -> None:
        """This node's admission was renewed."""
        self._admission = admission
        await self.publish()

    async def _start_gossip(self) -> None:
        assert self.run is not None
        where = None if self._gossip_port is None else Address(self._listen.host, self._gossip_port)
        self.gossip = NodeGossip(
            self.identity, self.endpoint, self.run, listen=where,
            announce=self.ways.standing.host,
            audience=self._belongs, members=lambda: self.members, emit=self._emit, changed=self._renew_soon,
        )  # fmt: skip
        await self.gossip.start()

    def _renew_soon(self) -> None:
        self._published = -_LIFETIME.total_seconds()

    def now(self) -> float:
        """Unix seconds as the members see them, by which records and admissions are judged."""
        return time.time() if self.directory is None else self.directory.now()

    def _look_at_clock(self) -> None:
        """Say once that the machine's clock is wrong, and once that it is right again."""
        warning = self.directory.clock_warning if self.directory is not None else None
        if (warning is None) is not self._clock_wrong:
            return
        self._clock_wrong = warning is not None
        if warning is not None:
            self._emit("clock.wrong", code=str(Code.SYS_CLOCK), reason=warning)
        else:
            self._emit("clock.right")

    # ---- records

    async def publish(self) -> None:
        """Put this node's record on its shelf: members with an admission, newcomers without."""
        assert self.directory is not None and self.endpoint.address is not None
        loop = asyncio.get_running_loop()
        known = bool(self._admission)
        shelf = "members" if known else "newcomers"
        issued = await self._time_to_issue(shelf)
        record = PeerRecord(
            peer=self.me,
            run=self.run if known and self.run else "",
            host=self.ways.standing.host,
            port=self.endpoint.address.port,
            certificate_pem=self._tls.certificate_pem,
            roles=self.roles,
            round=max(0, self.round),
            boot=self.boot,
            software=software_version(),
            protocol=PROTOCOL,
            admission=self._admission,
            issued_at=issued,
            expires_at=issued + _LIFETIME.total_seconds(),
            multiaddrs=self.directory.multiaddrs[:8],
            gossip_host=self.gossip.certificate if self.gossip else b"",
            gossip=self.gossip.multiaddrs if self.gossip else (),
            reach=self.ways.standing.reach,
            seen=self.ways.standing.seen,
            started=self._started,
        )
        sealed = seal(self.identity, self.run if known else None, record)
        await self.directory.publish(sealed, shelf=shelf)
        if not self._published:
            self._emit("directory.record", shelf=shelf)
        self._published = loop.time()

    async def _time_to_issue(self, shelf: str) -> float:
        """Now; later where an earlier process of this node, its clock ahead, left a record that counts still."""
        assert self.directory is not None
        now = self.now()
        held = (
            record.message.expires_at
            for record in await self.directory.records(shelf)
            if record.sender == self.me and record.message.boot != self.boot
        )
        later = max(held, default=0.0) + 0.001 - _LIFETIME.total_seconds()
        return later if now < later < now + CLOCK_TOLERANCE.total_seconds() else now

    def began(self, started: int) -> None:
        """The member has started; the record says when, so that two processes of one key are told apart."""
        if started != self._started:
            self._started = started
            self._renew_soon()

    def _look_for_twin(self, record: PeerRecord | None) -> None:
        """Another process that publishes under this node's key: boot number and time of start of its member."""
        if record is not None and record.boot != self.boot and record.started:
            self.twin = record.boot, record.started

    async def watch(self) -> None:
        """Read records, renew this node's, restart the directory when it died; until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            assert self.directory is not None
            try:
                if self.directory.died.is_set():
                    failure = self.directory.failure
                    self._emit("directory.died", reason=str(failure))
                    # a new one knows nobody at first, and members do not stop being members by that
                    self._remember_until = loop.time() + _REMEMBER.total_seconds()
                    await self._start_directory()
                    await self.publish()
                await self.look()
                self._look_at_clock()
                await self._see_to_ways()
                if loop.time() - self._published > _RENEW.total_seconds():
                    await self.publish()
            except NodeError as error:
                self._emit("directory.waits", code=str(error.code), reason=error.sentence)
            await asyncio.sleep(_LOOK.total_seconds())

    async def look(self) -> None:
        """Read the records once: learn certificates and addresses, forget who is gone."""
        assert self.directory is not None
        now = asyncio.get_running_loop().time()
        found = self._sort(await self.directory.records("members"))
        remembers = now < self._remember_until
        self.members = (self.members if remembers else {}) | found.members
        self._look_for_twin(self.members.get(self.me))
        newcomers = await self.directory.records("newcomers", tolerance=timedelta(minutes=1))
        self.newcomers = found.lapsed | {r.sender: r.message for r in newcomers if r.sender != self.me}
        for peer, record in (self.newcomers | self.members).items():
            if peer != self.me and record.certificate_pem and self._has_place_for(peer, now):
                with suppress(NodeError, ValueError):
                    control, bulk = await self.ways.addresses(self.directory, record)
                    self.trust.learn(peer, record.certificate_pem, control, bulk=bulk)
        gone = () if remembers else self._sightings.forget_gone(now, self.taking_part or ())
        for peer in gone:
            self.trust.forget(peer)
            if self.gossip is not None:
                self.gossip.forget(peer)
            await self.ways.forget(self.directory, peer)
        if self.gossip is not None:
            self.gossip.learn(self.members.values(), self.banned)
        self._remembered.keep_peers([each for record in self.members.values() for each in record.multiaddrs])
        self._remembered.keep_relays(self._known_relays())

    def _has_place_for(self, peer: PeerId, now: float) -> bool:
        """Whether a peer with a record may be learned: any member of the run, and so many others."""
        if peer in self.members and self._operator is not None:
            self._sightings.see_member(peer, now)
            return True
        return self._sightings.see_newcomer(peer, now)

    # ---- ways

    async def _see_to_ways(self) -> None:
        """Ask again now and then how this node is seen; find another relay where it has none."""
        assert self.directory is not None
        now = asyncio.get_running_loop().time()
        if now - self._probed > PROBE_AGAIN.total_seconds() and self._reach == "auto":
            self._probed = now
            await self.directory.ask_seen()
            if self.ways.take_stand(self.directory):
                await self.publish()
        if self.ways.standing.reach is not Reach.TUNNEL:
            return
        addresses = await self.directory.refresh_multiaddrs()
        relays = self._known_relays()
        has_place = any(is_circuit(address) for address in addresses)
        if not has_place and set(relays) - set(self._relays_tried):
            self._emit("node.relays", relays=list(relays))
            await self.directory.stop()
            await self._start_directory()
            await self.publish()

    def _known_relays(self) -> tuple[str, ...]:
        """Addresses of relays of the run, those of this moment first."""
        seen = [
            address
            for record in (*self.members.values(), *self.newcomers.values())
            if _RELAY_ROLE in record.roles and record.peer != self.me
            for address in record.multiaddrs
        ]
        return self._remembered.relays(seen)

    def _sort(self, records: Iterable[Sealed[PeerRecord]]) -> Sorted:
        """The members' shelf; all on it are members while the run is not known."""
        if self.run is None or self._operator is None:
            return Sorted({record.sender: record.message for record in records}, {})
        inside = None if self.taking_part is None else self.taking_part | {self.me}
        return sort(records, self.run, self._operator, inside, self.now())

    def peers(self, role: str = "trainer") -> list[PeerId]:
        """Admitted peers with a role, without this node."""
        return [
            peer
            for peer, record in self.members.items()
            if role in record.roles and peer != self.me and peer not in self.banned
        ]

    def reached(self) -> list[PeerId]:
        """Members to which there is a way that is in use, without this node."""
        return [
            peer
            for peer in self.members
            if peer not in self.banned and peer != self.me and self.ways.to(peer)
        ]

    def _belongs(self, peer: PeerId, audience: str) -> bool:
        if audience == "operator":
            return peer == self._operator
        record = self.members.get(peer)
        if self._operator is None or record is None or peer in self.banned:
            return False
        role = audience.removeprefix("role:")
        if role in _GIVEN_ROLES and role not in self.given_roles(peer):
            return False
        return audience == "member" or role in record.roles

    def given_roles(self, peer: PeerId) -> tuple[str, ...]:
        """What the operator admitted a member for, whatever its record says."""
        record = self.members.get(peer)
        if record is None or self.run is None or self._operator is None:
            return ()
        return given_roles(record.admission, self.run, self._operator, peer)
