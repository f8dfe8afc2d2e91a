"""Trust without certificates: in an in-memory swarm everybody knows everybody, unless told to forget."""

from dataclasses import replace

from protocol.trust import Known, Trust
from protocol.units import Address, PeerId


class Directory:
    """What a swarm's nodes know of one another when nothing else was said: everyone's latest record."""

    def __init__(self) -> None:
        self.peers: dict[PeerId, Known] = {}
        self.by_certificate: dict[bytes, PeerId] = {}
        self.version = 0

    def publish(self, peer: PeerId, certificate_pem: bytes, address: Address) -> None:
        """Replaces a peer's record."""
        before = self.peers.get(peer)
        if before is not None:
            del self.by_certificate[before.certificate_pem]
        self.peers[peer] = Known(certificate_pem, certificate_pem, (address,))
        self.by_certificate[certificate_pem] = peer
        self.version += 1


class MemoryTrust(Trust):
    """One node's view of the directory; it can learn more and forget."""

    def __init__(self, directory: Directory) -> None:
        super().__init__()
        self._directory = directory
        self._own: dict[PeerId, Known | None] = {}
        self._own_version = 0

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._directory.version + self._own_version

    def learn(
        self,
        peer: PeerId,
        certificate_pem: bytes,
        addresses: tuple[Address, ...],
        *,
        bulk: tuple[Address, ...] = (),
    ) -> None:
        """Trusts a certificate in place of what the directory says."""
        known = Known(certificate_pem, certificate_pem, _addresses(addresses), _addresses(bulk))
        if self._own.get(peer) != known:
            self._own[peer] = known
            self._own_version += 1

    def forget(self, peer: PeerId) -> None:
        """Trusts a peer no longer, whatever the directory says."""
        self._own[peer] = None
        self._own_version += 1

    def remember(self, peer: PeerId) -> None:
        """Believes the directory again."""
        self._own.pop(peer, None)
        self._own_version += 1

    def find(self, peer: PeerId, *, bulk: bool = False) -> Known | None:
        """Certificate and addresses of a peer, None if it is not known; with ``bulk``, the addresses for bulk."""
        known = self._own[peer] if peer in self._own else self._directory.peers.get(peer)
        return replace(known, addresses=known.bulk) if bulk and known is not None and known.bulk else known

    def peer_of_certificate(self, certificate_pem: bytes) -> PeerId | None:
        """The peer whose certificate this is."""
        peer = self._directory.by_certificate.get(certificate_pem)
        if not self._own:
            return peer
        if peer is not None and peer not in self._own:
            return peer
        for own, known in self._own.items():
            if known is not None and known.certificate_pem == certificate_pem:
                return own
        return None

    def pem_bundle(self) -> bytes:
        """All trusted certificates."""
        return b"".join(known.certificate_pem for peer in self.known() if (known := self.find(peer)))

    def certificate(self, peer: PeerId) -> bytes | None:
        """A peer's certificate, None if it is not known."""
        known = self.find(peer)
        return None if known is None else known.certificate_pem

    def addresses(self, peer: PeerId) -> tuple[Address, ...]:
        """Where a peer listens."""
        known = self.find(peer)
        return () if known is None else known.addresses

    def known(self) -> tuple[PeerId, ...]:
        """All trusted peers."""
        peers = dict.fromkeys(self._directory.peers) | dict.fromkeys(self._own)
        return tuple(peer for peer in peers if self.find(peer) is not None)


def _addresses(given: tuple[Address, ...]) -> tuple[Address, ...]:
    return tuple(Address(*each) for each in given)
