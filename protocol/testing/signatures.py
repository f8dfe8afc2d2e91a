"""A signature scheme for simulations: a keyed hash, fifty times cheaper than Ed25519, and worth nothing outside.

One secret makes every key, so whoever holds a :class:`KeyedHashes` can sign as anybody. A simulated adversary is given
a signer, not the scheme.
"""

from functools import lru_cache

from blake3 import blake3

from protocol.identity import peer_id_of
from protocol.units import PeerId


class KeyedSigner:
    """Signs as one peer."""

    def __init__(self, peer_id: PeerId, key: bytes) -> None:
        self.peer_id = peer_id
        self._key = key

    def sign(self, data: bytes) -> bytes:
        """32 bytes that only the scheme's verifier can check."""
        return blake3(data, key=self._key).digest()


class KeyedHashes:
    """Signers and their verifier.

    Args:
        secret: What all keys are made from.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = blake3(secret, derive_key_context="protocol.testing signatures").digest()
        self._key_of = lru_cache(maxsize=65_536)(self._derive)

    def _derive(self, peer: str) -> bytes:
        return blake3(peer.encode(), key=self._secret).digest()

    def signer(self, seed: bytes) -> KeyedSigner:
        """The signer whose peer id is made from ``seed``: well-formed, though no Ed25519 key is behind it."""
        peer = peer_id_of(blake3(seed).digest())
        return KeyedSigner(peer, self._key_of(peer))

    def verify(self, peer: PeerId, data: bytes, signature: bytes) -> bool:
        """Whether ``peer``'s signer made the signature."""
        return blake3(data, key=self._key_of(peer)).digest() == signature
