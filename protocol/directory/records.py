"""Peer records: what a node tells everyone about itself, and what a shelf of the directory accepts.

A shelf is one key of the DHT; under it each peer has one record, its subkey is the peer's id. Whoever stores a record,
answers with one or reads one applies the same rules, so a record needs no trust in those who keep it.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from protocol.delegation import authority
from protocol.directory.addresses import check_peer_address, peer_in
from protocol.directory.limits import CLOCK_TOLERANCE, MAX_LIFETIME, MAX_RECORD, MAX_RECORDS, MAX_REMEMBERED
from protocol.envelope import Sealed, unseal
from protocol.errors import Code, NodeError
from protocol.identity import Verifier, verify
from protocol.limits import MAX_CERTIFICATE
from protocol.messages import field, message
from protocol.units import PeerId, RunId

SHELVES = ("members", "newcomers")
"""Members of a run; peers that ask to become members."""


@message("directory.record", version=1, max_bytes="7 KiB", rate="1/s", audience="anyone")
class PeerRecord:
    """Where and what a peer is, signed by the peer, good until it expires."""

    peer: PeerId = field(1, max_bytes=64)
    run: str = field(2, default="", max_bytes=64)
    """The run's id; empty for a newcomer that does not know it yet."""
    host: str = field(3, default="", max_bytes=255)
    """Where its data plane listens."""
    port: int = field(4, default=0)
    certificate_pem: bytes = field(5, default=b"", max_bytes=int(MAX_CERTIFICATE))
    """The TLS certificate of its data plane in this boot."""
    roles: tuple[str, ...] = field(6, default=(), max_items=16)
    round: int = field(7, default=0)
    """The last round it committed."""
    boot: bytes = field(8, default=b"", max_bytes=16)
    software: str = field(9, default="", max_bytes=64)
    """Version of the package."""
    protocol: int = field(10, default=0)
    """Version of the protocol."""
    admission: bytes = field(11, default=b"", max_bytes="2 KiB")
    """Its sealed admission to the run; empty if it has none."""
    issued_at: float = field(12, default=0.0)
    """Unix seconds by the peer's clock."""
    expires_at: float = field(13, default=0.0)
    """Unix seconds by the peer's clock; of two records of a peer the one that expires later counts."""
    multiaddrs: tuple[str, ...] = field(14, default=(), max_items=8, max_bytes=256)
    """Where its directory listens, with peer id: a way into the directory."""
    withdrawn: bool = field(15, default=False)
    """The peer left; the record only takes the place of the one before."""
    reach: str = field(16, default="", max_bytes=16)
    """How its data plane is dialled: ``direct`` (also if empty) at host and port, or by ``tunnel``."""
    seen: str = field(17, default="", max_bytes=64)
    """The address that others see its connections come from; those who are seen as the same share a router."""
    gossip_host: bytes = field(18, default=b"", max_bytes=512)
    """Its word that a gossip host is its own (``gossip.host``, envelope bytes); empty if it has none."""
    gossip: tuple[str, ...] = field(19, default=(), max_items=4, max_bytes=256)
    """Where its gossip host listens, with that host's own peer id."""
    started: int = field(20, default=0)
    """When the member that it describes started, Unix milliseconds, growing with each start; 0 before it has."""


def shelf_key(namespace: str, shelf: str) -> str:
    """The DHT key of a shelf."""
    return f"{namespace}.{shelf}"


def check_record(record: Sealed[PeerRecord], *, peer: object, shelf: str, now: float) -> None:
    """Applies the rules that do not need the operator's key. None of them turns valid into invalid as time goes by.

    Args:
        record: The record, its signature verified.
        peer: The subkey it stands under.
        shelf: The shelf it stands on.
        now: Unix seconds.

    Raises:
        NodeError: ``E-DIR-004`` with the rule that it breaks.
    """
    said = record.message
    lifetime = said.expires_at - said.issued_at
    wrong = None
    if len(record.raw) > MAX_RECORD:
        wrong = f"has {len(record.raw)} bytes, {int(MAX_RECORD)} are allowed"
    elif record.sender != peer or said.peer != peer:
        wrong = f"is signed by {record.sender} and about {said.peer}"
    elif record.recipient is not None:
        wrong = "is addressed to one peer"
    elif record.run != said.run:
        wrong = f"names run {said.run[:12]!r} and is sealed for run {record.run[:12]!r}"
    elif shelf == "members" and not said.run:
        wrong = "names no run"
    elif not math.isfinite(lifetime) or not 0 < lifetime <= MAX_LIFETIME[shelf].total_seconds():
        wrong = f"is valid for {lifetime:.0f} s, {MAX_LIFETIME[shelf].total_seconds():.0f} s are allowed"
    elif said.issued_at > now + CLOCK_TOLERANCE.total_seconds():
        wrong = f"was issued {said.issued_at - now:.0f} s in the future"
    if wrong is not None:
        raise NodeError(Code.DIR_RECORD, f"The record of {str(peer)[:64]} {wrong}.", peer=str(peer)[:64])


def dht_expiry(record: PeerRecord) -> float:
    """Until when the DHT keeps a record, Unix seconds: beyond its expiry, so that clocks may differ."""
    return record.expires_at + CLOCK_TOLERANCE.total_seconds()


class Guard:
    """Decides what is a valid record, and remembers what it found valid: a shelf is read often and changes little.

    Args:
        shelves: Key of each shelf in the DHT, and its name.
        clock: Gives Unix seconds.
        verifier: Checks signatures.
    """

    def __init__(
        self, shelves: Mapping[bytes, str], clock: Callable[[], float], *, verifier: Verifier = verify
    ) -> None:
        self._shelves = dict(shelves)
        self._clock = clock
        self._verifier = verifier
        self._operator: PeerId | None = None
        self._admission: type[Any] | None = None
        self._opened: OrderedDict[bytes, Sealed[PeerRecord]] = OrderedDict()
        self._admitted: OrderedDict[bytes, None] = OrderedDict()
        self.refused = 0
        """Records found invalid so far."""
        self.members: set[str] = set()
        """Peers whose records on the members' shelf were valid; admitted ones, once the operator is known."""
        self.addresses: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        """Directory addresses of peers whose records were valid, the latest last."""

    def set_operator(self, operator: PeerId | None, admission: type[Any] | None) -> None:
        """From now on a member's record needs an admission.

        Args:
            operator: Who signs admissions; None lets everyone in.
            admission: Their message class, with an attribute ``peer``.
        """
        self._operator, self._admission = operator, admission
        self._admitted.clear()
        self.members.clear()

    @property
    def checks_admissions(self) -> bool:
        """Whether the operator is known."""
        return self._operator is not None

    def remember(self, peer: str, addresses: tuple[str, ...]) -> None:
        """Takes note of where a peer's directory listens."""
        self.addresses[peer] = addresses
        self.addresses.move_to_end(peer)
        while len(self.addresses) > MAX_REMEMBERED:
            self.addresses.popitem(last=False)

    def open(self, raw: bytes) -> Sealed[PeerRecord]:
        """Verifies and decodes a record.

        Raises:
            NodeError: As :func:`protocol.envelope.unseal`.
        """
        opened = self._opened.get(raw)
        if opened is None:
            opened = unseal(raw, run=None, expect=PeerRecord, verifier=self._verifier)
            self._opened[opened.raw] = opened
            if len(self._opened) > sum(MAX_RECORDS.values()):
                self._opened.popitem(last=False)
        return opened

    def check(self, raw: bytes, *, peer: object, shelf: str) -> Sealed[PeerRecord]:
        """Applies every rule to a record.

        Raises:
            NodeError: ``E-DIR-004``, or as :meth:`open`, or ``E-RND-001`` for a member without a valid admission.
        """
        record = self.open(raw)
        check_record(record, peer=peer, shelf=shelf, now=self._clock())
        if shelf == "members" and self._operator is not None:
            self._check_admission(record)
        return record

    def accepts(self, key: bytes, peer: object, raw: object, expiry: float) -> bool:
        """Whether the DHT may hold ``raw`` at ``key`` for ``peer`` until ``expiry``; counts what it refuses."""
        shelf = self._shelves.get(key)
        if shelf is not None and isinstance(raw, bytes):
            try:
                record = self.check(raw, peer=peer, shelf=shelf).message
            except NodeError:
                pass
            else:
                # exactly its own: else anyone could bring an old record back by storing it with a later expiry
                if expiry == dht_expiry(record):
                    self._note(record, shelf)
                    return True
        self.refused += 1
        return False

    def _check_admission(self, record: Sealed[PeerRecord]) -> None:
        if record.raw in self._admitted:
            return
        said = record.message
        admission: Sealed[Any] = unseal(
            said.admission, run=RunId(said.run), expect=self._admission, verifier=self._verifier
        )
        assert self._operator is not None
        right = authority(
            admission.sender, getattr(admission.message, "delegation", b""), "admit", root=self._operator,
            run=RunId(said.run), verifier=self._verifier,
        )  # fmt: skip
        if right is None or admission.message.peer != said.peer:
            sentence = f"The admission in the record of {said.peer} is not the operator's for that peer."
            raise NodeError(Code.RND_NOT_ADMITTED, sentence, peer=said.peer)
        self._admitted[record.raw] = None
        if len(self._admitted) > MAX_RECORDS["members"]:
            self._admitted.popitem(last=False)

    def _note(self, record: PeerRecord, shelf: str) -> None:
        if shelf == "members":
            if record.withdrawn:
                self.members.discard(record.peer)
            elif len(self.members) < MAX_RECORDS["members"]:
                self.members.add(record.peer)
        if record.withdrawn or not record.multiaddrs:
            return
        try:
            addresses = tuple(check_peer_address(address) for address in record.multiaddrs)
        except NodeError:
            return
        if all(peer_in(address) == record.peer for address in addresses):
            self.remember(record.peer, addresses)
