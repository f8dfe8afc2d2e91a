"""Values as bytes: the digest that names one, and reading one that came from elsewhere."""

from functools import lru_cache

from blake3 import blake3

from diloco.rounds.statements import Value
from protocol.messages import decode, encode


def value_digest(value: bytes) -> bytes:
    """The digest by which values are chained and voted on."""
    return blake3(b"intellect.value\0" + value).digest()


@lru_cache(maxsize=8)  # a round's value is read by each of its checks
def parse_value(data: bytes) -> Value:
    """Decode a value and insist that its bytes are canonical, so that one value has one digest.

    Raises:
        NodeError: It is no value.
        ValueError: It is not canonical, or nobody could decide the round after it.
    """
    value = decode(Value, data)
    if encode(value) != data:
        raise ValueError("the bytes of a value are not canonical")
    if not value.electorate:
        raise ValueError("the value names no voter")
    return value
