"""The tensor index of a safetensors file: which tensor lies where. Pure: bytes in, an index out.

A safetensors file is eight bytes of header length (little-endian), that many bytes of JSON, and the tensors' bytes
without a hole between them. What is read here may come from anyone: nothing is allocated by its claims, and a file that
breaks a rule is refused (or, by a publisher, sent as plain bytes).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.errors import Code, NodeError
from shardcast import limits

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
    "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
_METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies.

    Attributes:
        name: Its name.
        dtype: Its element type, as safetensors spells it ("BF16").
        shape: Elements along each axis.
        start: Its first byte, counted from the beginning of the file.
        end: The byte after its last.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def width(self) -> int:
        """Bytes of one element as bits are compared: 2, 4 or 8; 1 also for what is smaller than a byte."""
        return max(1, _BITS[self.dtype] // 8)


TensorIndex = tuple[TensorInfo, ...]
"""All tensors of a file, in the order of their bytes."""


def header_size(first: bytes) -> int:
    """How many bytes of a file its length and JSON header take, from its first eight.

    Raises:
        NodeError: SHC_TENSORS, when that is no header or more than is allowed.
    """
    length = int.from_bytes(first[:8], "little")
    if len(first) < 8 or not 2 <= length <= limits.MAX_TENSOR_HEADER:
        raise _bad("it does not begin with the length of a header")
    return 8 + length


def read_index(head: bytes, size: int) -> TensorIndex:
    """Read the index of a file of `size` bytes from its first `header_size` bytes.

    Raises:
        NodeError: SHC_TENSORS, for anything that safetensors does not allow.
    """
    begin = header_size(head)
    if begin > size or len(head) < begin:
        raise _bad("its header leaves the file")
    fields = _json(head[8:begin])
    fields.pop(_METADATA, None)
    return _index(
        [_info(name, entry, begin) for name, entry in fields.items() if isinstance(entry, dict)],
        len(fields),
        begin,
        size,
    )


def index_fields(index: TensorIndex) -> dict[str, Any]:
    """The index as JSON for a manifest: name to element type, shape, first byte, byte after the last."""
    return {info.name: [info.dtype, list(info.shape), info.start, info.end] for info in index}


def index_from_fields(fields: object, size: int) -> TensorIndex:
    """Read an index from a manifest's JSON, for a file of `size` bytes.

    Raises:
        NodeError: SHC_TENSORS, when it is none.
    """
    if not isinstance(fields, dict):
        raise _bad("it is no table of tensors")
    found = []
    for name, entry in fields.items():
        if not isinstance(entry, list) or len(entry) != 4:
            raise _bad(f"the entry of {name[:80]!r} is not a type, a shape and two offsets")
        found.append(_checked(name, entry[0], entry[1], entry[2], entry[3]))
    begin = min((info.start for info in found), default=size)
    return _index(found, len(fields), begin, size)


def _json(raw: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands twice")
        return found

    try:
        fields = json.loads(raw, object_pairs_hook=once)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise _bad("its header is no JSON table")
    return fields


def _info(name: str, entry: Mapping[str, Any], begin: int) -> TensorInfo:
    offsets = entry.get("data_offsets")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(o) for o in offsets):
        raise _bad(f"{name[:80]!r} has no offsets")
    start, end = offsets
    return _checked(name, entry.get("dtype"), entry.get("shape"), begin + start, begin + end)


def _checked(name: str, dtype: object, shape: object, start: object, end: object) -> TensorInfo:
    if len(name) > limits.MAX_TENSOR_NAME:
        raise _bad("the name of a tensor is too long")
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise _bad(f"{name[:80]!r} has an element type that is not known")
    if not isinstance(shape, list) or len(shape) > limits.MAX_AXES or not all(_is_size(s) for s in shape):
        raise _bad(f"{name[:80]!r} has no shape")
    bits = _BITS[dtype]
    for axis in shape:
        bits *= axis
    if not _is_size(start) or not _is_size(end) or (end - start) * 8 != bits:  # type: ignore[operator]
        raise _bad(f"{name[:80]!r} has other bytes than its shape says")
    return TensorInfo(name, dtype, tuple(shape), start, end)  # type: ignore[arg-type]


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limits.MAX_OBJECT


def _index(found: Sequence[TensorInfo], entries: int, begin: int, size: int) -> TensorIndex:
    if len(found) != entries:
        raise _bad("an entry is no table")
    ordered = sorted(found, key=lambda info: (info.start, info.end))
    at = begin
    for info in ordered:
        if info.start != at:
            raise _bad(f"{info.name[:80]!r} overlaps another tensor, or follows a hole")
        at = info.end
    if at != size:
        raise _bad(f"its tensors end at byte {at}, the file at {size}")
    return tuple(ordered)


def _bad(why: str) -> NodeError:
    return NodeError(Code.SHC_TENSORS, f"The tensor index is not valid: {why}.")
