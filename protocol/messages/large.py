"""Large bytes values of an encoding, kept away from the runtime, which copies them more often than they deserve.

A class of plain fields only (whole numbers, booleans, texts, bytes), as the frames of a bulk stream are, is written
and read here altogether; of any other class the large values are cut out and the runtime does the rest. The bytes
are the runtime's own either way, and whatever is out of the ordinary is left to it.
"""

from collections.abc import Mapping
from dataclasses import MISSING
from functools import lru_cache
from typing import Any, NamedTuple

from protocol.messages.fields import FieldSpec, Shape, check_length
from protocol.messages.registry import Spec

LARGE = 16_384
"""From this length on a bytes value is joined to, or cut out of, what the runtime writes and reads."""

_MOST_WALKED = 64  # fields looked at in search of large values; the runtime is faster at many small ones
_NUMBERS = {"bool": 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}


class LargeValues(NamedTuple):
    """Large values by field name, and the encoding without them."""

    values: dict[str, bytes]
    rest: bytes


class PlainFrame:
    """Writes and reads the instances of one class that has plain fields only."""

    def __init__(self, spec: Spec) -> None:
        self._owner = spec.cls.__name__
        self._fields = [
            (
                field.name,
                varint(field.number << 3 | (0 if field.kind in _NUMBERS else 2)),
                field.kind,
                field.presence or field.shape is Shape.OPTIONAL,
            )
            for field in spec.fields
        ]
        self._by_tag = {
            field.number << 3 | (0 if field.kind in _NUMBERS else 2): (
                field.name,
                field.python,
                _NUMBERS.get(field.kind),
            )
            for field in spec.fields
        }
        self._bounded = [
            (field.name, field)
            for field in spec.fields
            if field.max_bytes is not None or field.exact_bytes is not None
        ]
        self._absent = {field.name: _absent(field) for field in spec.fields}
        self._needed = MISSING in self._absent.values()

    @staticmethod
    def fits(spec: Spec) -> bool:
        """Whether all fields of a class are plain and one may be large."""
        kinds = [field.kind for field in spec.fields]
        return "bytes" in kinds and all(
            field.shape in (Shape.ONE, Shape.OPTIONAL)
            and (field.kind in ("bytes", "string") or field.python in (int, bool))
            and field.kind in ("bytes", "string", *_NUMBERS)
            and field.oneof is None
            and field.number < 16  # a tag of one byte
            for field in spec.fields
        )

    def write(self, held: Mapping[str, Any], unknown: bytes | None = None) -> bytes:
        """The encoding of the values, and of the fields of a newer version behind them."""
        pieces: list[bytes] = []
        for name, tag, kind, present in self._fields:
            value = held[name]
            if value is None or not (value or present):
                continue
            if kind == "bytes":
                size = len(value)
                pieces += (tag, _SHORT[size] if size < 0x80 else varint(size), value)
            elif kind == "string":
                text = value.encode()
                pieces += (tag, varint(len(text)), text)
            else:
                pieces += (tag, _SHORT[value] if value < 0x80 else varint(value))
        if unknown:
            pieces.append(unknown)
        return b"".join(pieces)

    def read(self, data: bytes) -> dict[str, Any] | None:
        """The values of an encoding; None where anything is out of the ordinary.

        Raises:
            NodeError: ``E-WIRE-004`` if a value breaks a bound.
        """
        held = self._absent.copy()
        by_tag = self._by_tag
        position, end, left = 0, len(data), len(by_tag)
        while position < end:
            known = by_tag.get(data[position])
            left -= 1
            if known is None or left < 0 or position + 2 > end:
                return None  # an unknown field, one that comes twice, or the end in the middle
            name, kind, most = known
            number = data[position + 1]
            position += 2
            if number > 0x7F:
                number, position = _read_varint(data, position - 1)
                if position > end:
                    return None
            if most is not None:
                if number > most:
                    return None
                held[name] = number if kind is not bool else number == 1
                continue
            start = position
            position += number
            if position > end:
                return None
            if kind is memoryview:  # the one kind of value that is not copied
                held[name] = memoryview(data)[start:position]
            elif kind is bytes:
                held[name] = data[start:position]
            else:
                try:
                    held[name] = data[start:position].decode()
                except UnicodeDecodeError:
                    return None
        if self._needed and MISSING in held.values():
            return None
        for name, field in self._bounded:
            if held[name] is not None:
                check_length(self._owner, field, held[name])
        return held


def _absent(field: FieldSpec) -> Any:
    """What a plain field is that did not come; MISSING where the runtime's way has to say that it is refused."""
    if field.shape is Shape.OPTIONAL:
        return None
    if field.presence:
        return field.default
    if field.exact_bytes is not None:
        return MISSING
    if field.python is memoryview:
        return memoryview(b"")
    return {"bool": False, "string": "", "bytes": b""}.get(field.kind, 0)


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
    value = shift = 0
    for byte in data[position : position + 10]:
        position += 1
        if byte < 0x80:
            return value | byte << shift, position
        value |= (byte & 0x7F) << shift
        shift += 7
    return 0, len(data) + 1


@lru_cache(1024)  # lengths and numbers of frames repeat, or are small
def varint(value: int) -> bytes:
    """A number in protobuf's variable length."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORT = tuple(bytes((value,)) for value in range(0x80))
