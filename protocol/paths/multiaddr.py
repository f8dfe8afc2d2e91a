"""Multiaddrs as bytes, as the network helper takes and gives them.

Source of the format: https://github.com/multiformats/multiaddr. hivemind's own encoder writes a peer id as a CID, which
the helper refuses, so addresses that go through a relay need this one. Peers have Ed25519 keys here, and no others.
"""

import ipaddress

from protocol.errors import NodeError
from protocol.identity import peer_id_of, public_key_of
from protocol.units import PeerId

_CODES = {
    "ip4": 4, "tcp": 6, "ip6": 41, "dns": 53, "dns4": 54, "dns6": 55, "udp": 273, "p2p-circuit": 290, "unix": 400,
    "p2p": 421, "quic": 460, "quic-v1": 461, "webtransport": 465,
}  # fmt: skip
_NAMES = {code: name for name, code in _CODES.items()}
_BARE = ("p2p-circuit", "quic", "quic-v1", "webtransport")
_TEXT = ("dns", "dns4", "dns6", "unix")
_KEY_HEAD = b"\x00\x24\x08\x01\x12\x20"
"""An identity multihash of 36 bytes: a protobuf public key of type Ed25519 with 32 bytes."""


def varint(number: int) -> bytes:
    """An unsigned number, seven bits a byte, the lowest first."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def to_bytes(address: str) -> bytes:
    """A multiaddr's bytes.

    Raises:
        ValueError: It has a protocol or a value that is not known here.
    """
    data = bytearray()
    parts = iter(address.split("/")[1:])
    for name in parts:
        if name not in _CODES:
            raise ValueError(f"no protocol {name!r} in {address!r}")
        data += varint(_CODES[name])
        if name == "unix":  # the rest is its path
            return bytes(data + _sized(("/" + "/".join(parts)).encode()))
        if name not in _BARE:
            value = next(parts, None)
            if value is None:
                raise ValueError(f"{name} has no value in {address!r}")
            data += _value(name, value)
    return bytes(data)


def _value(name: str, value: str) -> bytes:
    match name:
        case "ip4":
            return ipaddress.IPv4Address(value).packed
        case "ip6":
            return ipaddress.IPv6Address(value).packed
        case "tcp" | "udp":
            if not (value.isascii() and value.isdigit() and len(value) <= 5 and int(value) <= 65535):
                raise ValueError(f"{value} is not a port")
            return int(value).to_bytes(2, "big")
        case "p2p":
            try:
                return _sized(peer_bytes(PeerId(value)))
            except NodeError as error:
                raise ValueError(error.sentence) from None
        case _:
            return _sized(value.encode())


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def from_bytes(data: bytes) -> str:
    """A multiaddr's text; what the helper says is bounded by it, and this reads no more than there is.

    Raises:
        ValueError: The bytes are none, or name a protocol or a kind of key that is not known here.
    """
    text, at = "", 0
    while at < len(data):
        code, at = varint_at(data, at)
        name = _NAMES.get(code)
        if name is None:
            raise ValueError(f"no protocol {code}")
        text += f"/{name}"
        if name in _BARE:
            continue
        size = {"ip4": 4, "ip6": 16, "tcp": 2, "udp": 2}.get(name)
        if size is None:
            size, at = varint_at(data, at)
        raw, at = data[at : at + size], at + size
        if len(raw) != size:
            raise ValueError("a multiaddr that ends early")
        text += _text(name, raw)
    return text


def _text(name: str, raw: bytes) -> str:
    match name:
        case "ip4" | "ip6":
            return f"/{ipaddress.ip_address(raw)}"
        case "tcp" | "udp":
            return f"/{int.from_bytes(raw, 'big')}"
        case "p2p":
            return f"/{peer_of(raw)}"
        case "unix":
            return raw.decode()
        case _:
            return f"/{raw.decode()}"


def peer_of(raw: bytes) -> PeerId:
    """The peer id that a multihash is.

    Raises:
        ValueError: It is not that of an Ed25519 key.
    """
    if raw[:6] != _KEY_HEAD or len(raw) != 38:
        raise ValueError("a peer id that is not an Ed25519 key's")
    return peer_id_of(raw[6:])


def peer_bytes(peer: PeerId) -> bytes:
    """The multihash that a peer id is.

    Raises:
        NodeError: ``E-ID-003`` if it is not an Ed25519 key's.
    """
    return _KEY_HEAD + public_key_of(peer)


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """The number that :func:`varint` wrote at a place, and the place behind it.

    Raises:
        ValueError: It does not end.
    """
    number, shift = 0, 0
    while at < len(data) and shift < 63:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
    raise ValueError("a number that does not end")


def is_circuit(address: str) -> bool:
    """Whether the way goes through a relay."""
    return "/p2p-circuit" in address
