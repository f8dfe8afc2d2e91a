"""A node's identity: one Ed25519 key in one file, and the libp2p peer id that names it."""

import base64
import binascii
import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

from protocol.errors import Code, NodeError
from protocol.units import PeerId

_HEADER = "intellect-node identity 1"
_SEED_BYTES = 32
_SIGNATURE_BYTES = 64
_MAX_FILE = 512

# A libp2p peer id of a small key is the key itself: multihash "identity" (0x00) over 36 bytes, which are the protobuf
# PublicKey {Type = Ed25519 (1), Data = 32 bytes}. libp2p specification, peer-ids.
_PEER_PREFIX = bytes((0x00, 0x24, 0x08, 0x01, 0x12, 0x20))
_MAX_PEER_TEXT = 64
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


class Signer(Protocol):
    """Whatever can sign as a peer: an :class:`Identity`, or a keyed hash in tests and simulation."""

    @property
    def peer_id(self) -> PeerId:
        """The peer that signs."""
        ...

    def sign(self, data: bytes) -> bytes:
        """A signature of ``data``, at most 255 bytes."""
        ...


class Verifier(Protocol):
    """Whatever can check a signature; false for any kind of badness, never an exception."""

    def __call__(self, peer: PeerId, data: bytes, signature: bytes) -> bool:
        """Whether ``peer`` signed ``data``."""
        ...


class Identity:
    """An Ed25519 key pair and its peer id."""

    def __init__(self, seed: bytes) -> None:
        """Takes the 32 secret bytes that the key pair is made from."""
        if len(seed) != _SEED_BYTES:
            raise ValueError(f"a seed has {_SEED_BYTES} bytes, not {len(seed)}")
        self.seed = bytes(seed)
        # libsodium verifies in 60 % of OpenSSL's time, and every control message is signed and verified once
        self.public_key, self._key = crypto_sign_seed_keypair(self.seed)
        self.peer_id = peer_id_of(self.public_key)

    def __repr__(self) -> str:
        """Names the peer and shows no secret."""
        return f"Identity({self.peer_id})"

    def sign(self, data: bytes) -> bytes:
        """The 64-byte Ed25519 signature of ``data``. The caller sees to it that nobody else chose the bytes."""
        return crypto_sign(data, self._key)[:_SIGNATURE_BYTES]

    @classmethod
    def ephemeral(cls, seed: bytes | None = None) -> "Identity":
        """An identity that no file holds: random, or made from ``seed``."""
        return cls(secrets.token_bytes(_SEED_BYTES) if seed is None else seed)

    @classmethod
    def create(cls, path: Path) -> "Identity":
        """Makes a new identity and stores it at ``path`` with mode 0600, whole or not at all.

        Raises:
            NodeError: ``E-ID-002`` if the file exists, ``E-STO-002`` if it cannot be written.
        """
        identity = cls.ephemeral()
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(descriptor, "w") as file:
                    file.write(f"{_HEADER}\n{base64.b64encode(identity.seed).decode()}\n")
                    file.flush()
                    os.fsync(file.fileno())
                os.link(temporary, path)  # unlike rename, link never replaces somebody's key
            finally:
                os.unlink(temporary)
        except OSError as error:
            if isinstance(error, FileExistsError) and path.exists():
                raise NodeError(Code.ID_UNREADABLE, f"There is already a key file at {path}.") from error
            raise NodeError(
                Code.STO_UNWRITABLE, f"The key file {path} cannot be written: {error.strerror}."
            ) from error
        return identity

    @classmethod
    def load(cls, path: Path) -> "Identity":
        """Reads the identity stored at ``path``.

        Raises:
            NodeError: ``E-ID-001`` if others may read the file, ``E-ID-002`` if it is missing or not a key file.
        """
        try:
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                if mode & 0o077:
                    raise NodeError(
                        Code.ID_PERMISSIONS,
                        f"Others than its owner can read or write the key file {path} (mode {mode:04o}).",
                        fix=f"Run `chmod 600 {path}`.",
                    )
                text = file.read(_MAX_FILE + 1)
        except OSError as error:
            raise NodeError(
                Code.ID_UNREADABLE, f"The key file {path} cannot be read: {error.strerror}."
            ) from error
        lines = text.decode("ascii", "replace").split("\n")
        if len(text) > _MAX_FILE or lines[0] != _HEADER or len(lines) != 3 or lines[2]:
            raise NodeError(
                Code.ID_UNREADABLE, f"{path} is not a key file: its first line should be '{_HEADER}'."
            )
        try:
            return cls(base64.b64decode(lines[1], validate=True))
        except (binascii.Error, ValueError) as error:
            raise NodeError(Code.ID_UNREADABLE, f"The key in {path} is damaged: {error}.") from error

    @classmethod
    def load_or_create(cls, path: Path) -> "Identity":
        """Reads the identity at ``path``, or makes one there if the file does not exist."""
        if path.exists():
            return cls.load(path)
        try:
            return cls.create(path)
        except NodeError as error:
            if error.code is Code.ID_UNREADABLE and path.exists():
                return cls.load(path)  # another process made it between the two lines above
            raise


def peer_id_of(public_key: bytes) -> PeerId:
    """The peer id of a 32-byte Ed25519 public key."""
    if len(public_key) != 32:
        raise ValueError(f"an Ed25519 public key has 32 bytes, not {len(public_key)}")
    number = int.from_bytes(_PEER_PREFIX + public_key)
    digits = []
    while number:
        number, digit = divmod(number, 58)
        digits.append(_BASE58[digit])
    return PeerId("1" + "".join(reversed(digits)))  # the prefix has exactly one leading zero byte


@lru_cache(maxsize=8192)
def public_key_of(peer_id: str) -> bytes:
    """The 32-byte Ed25519 public key inside a peer id.

    Raises:
        NodeError: ``E-ID-003`` for anything that is not the one way to write such a peer id.
    """
    number = 0
    valid = isinstance(peer_id, str) and 0 < len(peer_id) <= _MAX_PEER_TEXT
    for character in peer_id if valid else "":
        digit = _BASE58.find(character)
        if digit < 0:
            valid = False
            break
        number = number * 58 + digit
    raw = number.to_bytes(48) if valid and number < 1 << 384 else b""
    key = raw[-32:]
    if not valid or raw[-38:-32] != _PEER_PREFIX or any(raw[:-38]) or peer_id_of(key) != peer_id:
        shown = peer_id[:_MAX_PEER_TEXT] if isinstance(peer_id, str) else type(peer_id).__name__
        raise NodeError(Code.ID_BAD_PEER, f"{shown!r} is not the peer id of an Ed25519 key.")
    return key


def verify(peer: PeerId, data: bytes, signature: bytes) -> bool:
    """Whether ``signature`` is ``peer``'s Ed25519 signature of ``data``; false for a peer id that is none."""
    if len(signature) != _SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + data, public_key_of(peer))
    except (BadSignatureError, NodeError):
        return False
    return True
