"""Whom a node lets connect, and where it finds them."""

import threading
from dataclasses import dataclass, replace
from types import MappingProxyType

from protocol.tls import check_certificate, fingerprint_of
from protocol.units import Address, PeerId


@dataclass(frozen=True)
class Known:
    """One trusted peer: its certificate as PEM text with its fingerprint, and its addresses, best first.

    Attributes:
        bulk: Other addresses for bulk, best first; empty where it has none of its own. A tunnel has, since a stream
            inside the network helper carries only one of the two.
    """

    certificate_pem: bytes
    fingerprint: bytes
    addresses: tuple[Address, ...]
    bulk: tuple[Address, ...] = ()


class Trust:
    """The certificates and addresses of known peers. It may change at any time, from any thread.

    The caller has verified that a peer's Ed25519 key signed the certificate that it gives to :meth:`learn`, as a
    directory record does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._peers: MappingProxyType[PeerId, Known] = MappingProxyType({})
        self._by_fingerprint: MappingProxyType[bytes, PeerId] = MappingProxyType({})
        self._by_pem: MappingProxyType[bytes, PeerId] = MappingProxyType({})
        self._version = 0

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._version

    def learn(
        self,
        peer: PeerId,
        certificate_pem: bytes,
        addresses: tuple[Address, ...],
        *,
        bulk: tuple[Address, ...] = (),
    ) -> None:
        """Trusts a peer's certificate, in place of any earlier one of that peer.

        Args:
            peer: The peer.
            certificate_pem: Its certificate.
            addresses: Where it listens, best first.
            bulk: Where it is reached for bulk, if not there.

        Raises:
            NodeError: ``E-DIR-004`` if the certificate is not one that names this peer.
        """
        known = self._peers.get(peer)
        if known is None or known.certificate_pem != certificate_pem:
            certificate_pem = check_certificate(peer, certificate_pem)
            fingerprint = fingerprint_of(certificate_pem)
        else:
            fingerprint = known.fingerprint
        entry = Known(certificate_pem, fingerprint, _addresses(addresses), _addresses(bulk))
        if entry == known:
            return
        with self._lock:
            self._replace({**self._peers, peer: entry})

    def forget(self, peer: PeerId) -> None:
        """Trusts a peer no longer; its open connections are refused from the next call on."""
        with self._lock:
            self._replace({name: known for name, known in self._peers.items() if name != peer})

    def _replace(self, peers: dict[PeerId, Known]) -> None:
        # whole new maps: the threads of gRPC read while this one writes
        self._peers = MappingProxyType(peers)
        self._by_fingerprint = MappingProxyType({known.fingerprint: peer for peer, known in peers.items()})
        self._by_pem = MappingProxyType({known.certificate_pem: peer for peer, known in peers.items()})
        self._version += 1

    def find(self, peer: PeerId, *, bulk: bool = False) -> Known | None:
        """Certificate and addresses of a peer, None if it is not known; with ``bulk``, the addresses for bulk."""
        known = self._peers.get(peer)
        if bulk and known is not None and known.bulk:
            return replace(known, addresses=known.bulk)
        return known

    def peer_of_certificate(self, certificate_pem: bytes) -> PeerId | None:
        """The peer whose current certificate this is."""
        peer = self._by_pem.get(certificate_pem)
        if peer is not None:
            return peer
        try:  # the same certificate with other line breaks
            return self._by_fingerprint.get(fingerprint_of(certificate_pem))
        except ValueError:
            return None

    def pem_bundle(self) -> bytes:
        """All trusted certificates, one after the other."""
        return b"".join(known.certificate_pem for known in self._peers.values())

    def certificate(self, peer: PeerId) -> bytes | None:
        """A peer's certificate as PEM text, None if it is not known."""
        known = self._peers.get(peer)
        return None if known is None else known.certificate_pem

    def addresses(self, peer: PeerId) -> tuple[Address, ...]:
        """Where a peer listens, best first; empty if it is not known."""
        known = self._peers.get(peer)
        return () if known is None else known.addresses

    def known(self) -> tuple[PeerId, ...]:
        """All trusted peers."""
        return tuple(self._peers)


def _addresses(given: tuple[Address, ...]) -> tuple[Address, ...]:
    return tuple(Address(*each) for each in given)
