"""The signed envelope that every control message travels in.

What is signed is a header: domain, run, message name and version, sender, recipient, boot number, sequence and the
BLAKE3 hash of the payload. An envelope without a recipient is a *statement*: it can be passed on, kept and shown as
evidence. An addressed one is only good for its recipient, and once.

Bytes of an envelope, every one of them covered by the signature directly or through the payload's hash:

    1 byte length of the signature | signature | 2 bytes length of the header (little-endian) | header | payload

The header is protobuf (:class:`Header`). The signature is made over a fixed tag and the header's bytes as they are,
so that nothing depends on an encoding being canonical, and no other signed thing can pass for an envelope.
"""

import struct
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from blake3 import blake3
from google.protobuf.message import DecodeError

from protocol import limits
from protocol.errors import Code, NodeError
from protocol.identity import Signer, Verifier, verify
from protocol.messages.declaration import field, part
from protocol.messages.registry import REGISTRY, Plane, Role, Spec, spec_of
from protocol.messages.wire import decode, encode, runtime_class
from protocol.units import Digest, PeerId, RunId

M = TypeVar("M")

DOMAIN = "intellect.envelope.1"
_SIGNED_TAG = b"intellect-node envelope 1\x00"
_BOOT_BYTES = 16
_MAX_TEXT = 64
_LENGTH = struct.Struct("<H")
_SHORT = tuple(bytes((length,)) for length in range(limits.MAX_SIGNATURE + 1))


@part
class Header:
    """The signed part of an envelope."""

    domain: str = field(1, max_bytes=_MAX_TEXT)
    run: str = field(2, max_bytes=_MAX_TEXT)
    name: str = field(3, max_bytes=_MAX_TEXT)
    version: int = field(4, kind="uint32")
    sender: str = field(5, max_bytes=_MAX_TEXT)
    recipient: str = field(6, max_bytes=_MAX_TEXT)
    boot: bytes = field(7, max_bytes=_BOOT_BYTES)
    sequence: int = field(8)
    payload: Digest = field(9)


_RuntimeHeader: Any = runtime_class(
    Header
)  # built and read for every message, so without a Header in between


@dataclass(frozen=True, eq=False)
class Sealed(Generic[M]):
    """A message with its verified envelope. Two are equal when their bytes are.

    Attributes:
        message: The message.
        sender: Who signed it.
        recipient: Whom it is for; None makes it a statement.
        boot: The sender's boot number: 16 bytes, or empty in a statement.
        sequence: The sender's counter towards this recipient since that boot.
        run: The run it belongs to, empty for what is said before a run is known.
        version: The version of the message that the sender spoke.
        raw: The whole envelope: what travels, and what is kept as evidence.
    """

    message: M
    sender: PeerId
    recipient: PeerId | None
    boot: bytes
    sequence: int
    run: RunId
    version: int
    raw: bytes

    @property
    def digest(self) -> Digest:
        """BLAKE3 of the envelope's bytes, its short name."""
        return Digest(blake3(self.raw).digest())

    def __eq__(self, other: object) -> bool:
        """Compares the envelopes' bytes."""
        return isinstance(other, Sealed) and self.raw == other.raw

    def __hash__(self) -> int:
        """Hashes the envelope's bytes."""
        return hash(self.raw)


def seal(
    signer: Signer,
    run: RunId | None,
    message: M,
    *,
    recipient: PeerId | None = None,
    boot: bytes = b"",
    sequence: int = 0,
) -> Sealed[M]:
    """Signs a message.

    Args:
        signer: Who says it.
        run: The run it belongs to, None before a run is known.
        message: An instance of a class declared with ``@message`` or ``@request`` for the control plane.
        recipient: Whom it is for; None makes a statement.
        boot: The signer's boot number, 16 random bytes per process start; empty in a statement.
        sequence: The signer's counter towards the recipient since that boot.

    Raises:
        NodeError: ``E-WIRE-001`` for a class that no envelope carries, ``E-WIRE-002`` if the message is too large.
    """
    raw = seal_raw(signer, run, message, recipient=recipient, boot=boot, sequence=sequence)
    version = spec_of(type(message)).version
    return Sealed(message, signer.peer_id, recipient, boot, sequence, run or RunId(""), version, raw)


def seal_raw(
    signer: Signer,
    run: RunId | None,
    message: Any,
    *,
    recipient: PeerId | None = None,
    boot: bytes = b"",
    sequence: int = 0,
) -> bytes:
    """As :func:`seal`, for one who only sends the envelope.

    Raises:
        NodeError: As :func:`seal`.
    """
    spec = _control_spec(type(message))
    payload = encode(message)
    header = _RuntimeHeader(
        domain=DOMAIN,
        run=run or "",
        name=spec.name,
        version=spec.version,
        sender=signer.peer_id,
        recipient=recipient or "",
        boot=boot,
        sequence=sequence,
        payload=blake3(payload).digest(),
    ).SerializeToString()
    signature = signer.sign(_SIGNED_TAG + header)
    return b"".join((_SHORT[len(signature)], signature, _LENGTH.pack(len(header)), header, payload))


def unseal(
    raw: bytes,
    *,
    run: RunId | None,
    expect: type[M] | None = None,
    me: PeerId | None = None,
    peer: PeerId | None = None,
    window: "ReplayWindow | None" = None,
    verifier: Verifier = verify,
) -> Sealed[M]:
    """Checks an envelope and opens it: size, header, signature, freshness, and only then the message is decoded.

    Args:
        raw: The bytes that came.
        run: The run it has to belong to; None accepts any, for directory records read before a run is known.
        expect: The message class that it has to hold; any registered one if None.
        me: The peer that reads it; one addressed to somebody else is refused. None accepts every recipient.
        peer: Who delivered it; an addressed one of another sender is refused. None accepts every sender.
        window: Takes note of an addressed one, and refuses it if it came before.
        verifier: Checks the signature.

    Raises:
        NodeError: ``E-WIRE-002`` too large, ``E-WIRE-003`` malformed, ``E-WIRE-010`` another domain, ``E-WIRE-008``
            another message, ``E-NET-006`` an unknown one, ``E-NET-009`` a version too far from ours, ``E-WIRE-006``
            another run, ``E-WIRE-007`` another recipient or another's word to one peer, ``E-WIRE-005`` a bad signature
            or payload hash, ``E-WIRE-009`` one that came before, ``E-WIRE-012`` one of an earlier boot of its sender,
            ``E-WIRE-004`` a value that breaks a bound.
    """
    most = limits.MAX_CONTROL if expect is None else _control_spec(expect).max_bytes
    if len(raw) > most + limits.MAX_HEADER + limits.MAX_SIGNATURE + 3:
        raise NodeError(
            Code.WIRE_TOO_LARGE, f"An envelope of {len(raw)} bytes came, {int(most)} are allowed."
        )
    signature, header_bytes, payload = _split(raw)
    try:
        header: Any = _RuntimeHeader.FromString(header_bytes)
    except DecodeError as error:
        raise NodeError(
            Code.WIRE_MALFORMED, "An envelope came whose header is not valid protobuf."
        ) from error
    spec = _check_header(header, run=run, expect=expect, me=me)
    if len(payload) > spec.max_bytes:
        raise NodeError(
            Code.WIRE_TOO_LARGE, f"A {spec.name} has {len(payload)} bytes, {int(spec.max_bytes)} are allowed."
        )
    sender = PeerId(header.sender)
    if blake3(payload).digest() != header.payload or not verifier(
        sender, _SIGNED_TAG + header_bytes, signature
    ):
        raise NodeError(
            Code.WIRE_SIGNATURE, f"The signature of a {spec.name} does not verify.", peer=header.sender
        )
    if header.recipient:
        if peer is not None and sender != peer:
            raise NodeError(
                Code.WIRE_WRONG_RECIPIENT, f"{peer} delivered what {sender} said to one peer.", peer=peer
            )
        if window is not None:
            window.take(sender, header.boot, header.sequence)
    message = decode(cast("type[M]", spec.cls), payload)
    sealed: Sealed[M] = object.__new__(
        Sealed
    )  # a frozen dataclass sets its fields one by one; this is for every call
    sealed.__dict__.update(
        message=message,
        sender=sender,
        recipient=PeerId(header.recipient) if header.recipient else None,
        boot=header.boot,
        sequence=header.sequence,
        run=RunId(header.run),
        version=header.version,
        raw=bytes(raw),
    )
    return sealed


def _control_spec(cls: type[Any]) -> Spec:
    spec = spec_of(cls)
    if spec.role is Role.PART or spec.plane is not Plane.CONTROL:
        raise NodeError(
            Code.WIRE_DECLARATION, f"{spec.name} is not a control message, so no envelope carries it."
        )
    return spec


def _split(raw: bytes) -> tuple[bytes, bytes, bytes]:
    start = 1 + raw[0] if raw else 1
    if len(raw) >= start + 2:
        (length,) = _LENGTH.unpack_from(raw, start)
        end = start + 2 + length
        if length <= limits.MAX_HEADER and end <= len(raw):
            return raw[1:start], raw[start + 2 : end], raw[end:]
    raise NodeError(Code.WIRE_MALFORMED, f"{len(raw)} bytes came that are no envelope.")


def _check_header(header: Any, *, run: RunId | None, expect: type[Any] | None, me: PeerId | None) -> Spec:
    if header.domain != DOMAIN:
        raise NodeError(
            Code.WIRE_DOMAIN, f"A signature for {header.domain[:64]!r} came where {DOMAIN!r} belongs."
        )
    for text in (header.run, header.name, header.sender, header.recipient):
        if len(text) > _MAX_TEXT or not (text.isascii() and text.isprintable()):  # errors show these words
            raise NodeError(Code.WIRE_INVALID, f"An envelope came whose header holds {text[:_MAX_TEXT]!r}.")
    if len(header.boot) != _BOOT_BYTES and (header.boot or header.recipient):
        raise NodeError(Code.WIRE_INVALID, f"A boot number of {len(header.boot)} bytes came.")
    if expect is not None and header.name != spec_of(expect).name:
        raise NodeError(
            Code.WIRE_WRONG_MESSAGE,
            f"A {header.name} came where a {spec_of(expect).name} belongs.",
            peer=header.sender,
        )
    spec = spec_of(expect) if expect is not None else REGISTRY.find(header.name)
    if spec.plane is not Plane.CONTROL:
        raise NodeError(Code.WIRE_WRONG_MESSAGE, f"A {spec.name} came in an envelope.", peer=header.sender)
    if not spec.understands(header.version):
        raise NodeError(
            Code.NET_VERSION,
            f"A {spec.name} of version {header.version} came; this node speaks version {spec.version}.",
            peer=header.sender,
        )
    if run is not None and header.run != run:
        raise NodeError(
            Code.WIRE_WRONG_RUN,
            f"A {spec.name} of run {header.run[:12] or 'none'} came; this node is in run {run[:12]}.",
            peer=header.sender,
        )
    if me is not None and header.recipient and header.recipient != me:
        raise NodeError(
            Code.WIRE_WRONG_RECIPIENT,
            f"A {spec.name} for {header.recipient} came to {me}.",
            peer=header.sender,
        )
    return spec


class ReplayWindow:
    """Lets each addressed envelope through once: per sender and boot number, a bitmap of the last 1,024 sequences.

    A sender's new boot number starts afresh and its earlier ones are refused from then on. Used by one task or
    thread at a time.
    """

    def __init__(self) -> None:
        self._senders: dict[PeerId, _Seen] = {}

    def accept(self, sealed: Sealed[Any]) -> None:
        """Notes an envelope.

        Raises:
            NodeError: As :meth:`take`.
        """
        self.take(sealed.sender, sealed.boot, sealed.sequence)

    def take(self, sender: PeerId, boot: bytes, sequence: int) -> None:
        """Notes the sequence of an envelope.

        Raises:
            NodeError: ``E-WIRE-009`` if it came before or is too old to tell, ``E-WIRE-012`` if it is of an earlier
                boot.
        """
        seen = self._senders.get(sender)
        if seen is None or (seen.boot != boot and boot not in seen.earlier):
            earlier = () if seen is None else (*seen.earlier, seen.boot)[-limits.REPLAY_BOOTS :]
            seen = self._senders[sender] = _Seen(boot, earlier)
        if seen.boot != boot:
            raise NodeError(
                Code.WIRE_OLD_BOOT,
                f"Message {sequence} of {sender} is of an earlier start of its process.",
                peer=sender,
            )
        if not seen.take(sequence):
            raise NodeError(Code.WIRE_REPLAY, f"Message {sequence} of {sender} came before.", peer=sender)

    def forget(self, sender: PeerId) -> None:
        """Drops what is known of a peer that left for good."""
        self._senders.pop(sender, None)


class _Seen:
    def __init__(self, boot: bytes, earlier: tuple[bytes, ...]) -> None:
        self.boot = boot
        self.earlier = earlier
        self._highest = -1
        self._bits = 0  # bit i: sequence _highest - i came

    def take(self, sequence: int) -> bool:
        ahead = sequence - self._highest
        if ahead > 0:
            kept = self._bits << ahead if ahead < limits.REPLAY_WINDOW else 0
            self._bits = (kept | 1) & ((1 << limits.REPLAY_WINDOW) - 1)
            self._highest = sequence
            return True
        bit = 1 << -ahead
        if -ahead >= limits.REPLAY_WINDOW or self._bits & bit:
            return False
        self._bits |= bit
        return True
