"""Large bytes values of an encoding, kept away from the runtime, which copies them more often than they deserve."""

from typing import NamedTuple

LARGE = 16_384
"""From this length on a bytes value is joined to, or cut out of, what the runtime writes and reads."""

_MOST_WALKED = 64  # fields looked at in search of large values; the runtime is faster at many small ones


class LargeValues(NamedTuple):
    """Large values by field name, and the encoding without them."""

    values: dict[str, bytes]
    rest: bytes


def cut_large(data: bytes, names: dict[int, str]) -> LargeValues | None:
    """Cuts the large values of bytes fields out of an encoding.

    Args:
        data: The encoding of one message.
        names: Its bytes fields, name by number.

    Returns:
        None where there are none, and where anything is out of the ordinary: the runtime judges that.
    """
    values: dict[str, bytes] = {}
    pieces: list[bytes] = []
    seen: set[int] = set()
    position = kept = 0
    for _ in range(_MOST_WALKED):
        if position == len(data) or not names:
            break
        start = position
        tag, position = _read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            _, position = _read_varint(data, position)
        elif wire_type == 2:
            length, position = _read_varint(data, position)
            end = position + length
            if number in names:
                if number in seen:
                    return None
                seen.add(number)
                if length >= LARGE and end <= len(data):
                    values[names[number]] = data[position:end]
                    pieces.append(data[kept:start])
                    kept = end
            position = end
        elif wire_type in (1, 5):
            position += 8 if wire_type == 1 else 4
        else:
            return None
        if position > len(data):
            return None
    if position != len(data) or not values:
        return None
    pieces.append(data[kept:])
    return LargeValues(values, b"".join(pieces))


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A varint and where it ends; a position beyond the data where it does not end."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 0, len(data) + 1


def varint(value: int) -> bytes:
    """A number in protobuf's variable length."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
