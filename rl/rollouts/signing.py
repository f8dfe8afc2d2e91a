"""A signature of a rollout file: over the BLAKE3 digest of its bytes, so it is checked before it is read."""

import json
from dataclasses import dataclass
from typing import Self

from blake3 import blake3

from protocol.errors import Code, NodeError
from protocol.identity import Signer, Verifier, verify
from protocol.units import DIGEST_BYTES, Digest, PeerId

_TAG = b"intellect-node rollout file 1\x00"
MARKER_BYTES = 1024


@dataclass(frozen=True)
class Signed:
    """Who signed which file.

    Attributes:
        signer: Who signed: the worker that made it; or a trainer, for validators that it has judge the file.
        digest: BLAKE3 of the file's bytes.
        signature: Over a fixed tag and the digest, at most 255 bytes.
    """

    signer: PeerId
    digest: Digest
    signature: bytes

    @classmethod
    def make(cls, signer: Signer, data: bytes) -> Self:
        """Signs a file's bytes."""
        digest = Digest(blake3(data).digest())
        return cls(signer.peer_id, digest, signer.sign(_TAG + digest))

    def check(self, data: bytes, verifier: Verifier = verify) -> None:
        """Holds against a file's bytes.

        Raises:
            NodeError: ``E-RL-003`` when the bytes are others, or the signer did not sign them.
        """
        if blake3(data).digest() != self.digest:
            raise NodeError(
                Code.RL_FILE_SIGNATURE,
                f"A rollout file is not the one that its signature is for ({self.digest.hex()[:16]}).",
                peer=self.signer,
            )
        if not verifier(self.signer, _TAG + self.digest, self.signature):
            raise NodeError(
                Code.RL_FILE_SIGNATURE, f"{self.signer} did not sign this rollout file.", peer=self.signer
            )

    def to_json(self) -> bytes:
        """What the marker beside a file holds."""
        held = {"digest": self.digest.hex(), "signature": self.signature.hex(), "signer": self.signer}
        return json.dumps(held, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """What :meth:`to_json` wrote.

        Raises:
            NodeError: ``E-RL-003`` for anything else.
        """
        try:
            held = json.loads(text[: MARKER_BYTES + 1])
            digest, signature = bytes.fromhex(held["digest"]), bytes.fromhex(held["signature"])
            signed = cls(PeerId(held["signer"]), Digest(digest), signature)
            whole = len(held) == 3 and len(digest) == DIGEST_BYTES and isinstance(held["signer"], str)
        except (ValueError, TypeError, KeyError, RecursionError):
            whole = False
        if not whole:
            raise NodeError(Code.RL_FILE_SIGNATURE, "The signature beside a rollout file is damaged.")
        return signed
