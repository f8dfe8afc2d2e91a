"""Safetensors files for tests, made by hand: any element type, any bits, any order."""

import json
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

WIDTH = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I64": 8, "U8": 1, "BOOL": 1, "F8_E4M3": 1}


@dataclass(frozen=True)
class Weight:
    """One tensor: its name, element type, shape, and bytes as they lie in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def file_of(weights: list[Weight], metadata: dict[str, str] | None = None, pad: int = 0) -> bytes:
    """The safetensors file that holds these tensors in this order."""
    entries: dict[str, object] = {"__metadata__": metadata} if metadata is not None else {}
    at = 0
    for weight in weights:
        entries[weight.name] = {
            "dtype": weight.dtype,
            "shape": weight.shape,
            "data_offsets": [at, at + len(weight.data)],
        }
        at += len(weight.data)
    head = json.dumps(entries).encode() + b" " * pad
    return struct.pack("<Q", len(head)) + head + b"".join(weight.data for weight in weights)


def weight_of(name: str, dtype: str, data: bytes) -> Weight:
    """A flat tensor with these bytes."""
    return Weight(name, dtype, (len(data) // WIDTH[dtype],), data)


@st.composite
def weights(draw: Callable[..., object]) -> list[Weight]:
    """Some tensors with any bits: numbers, infinities, NaNs with any payload."""
    found = []
    for name in draw(st.lists(st.sampled_from("abcdefg"), unique=True, max_size=5)):  # type: ignore[attr-defined]
        dtype = draw(st.sampled_from(sorted(WIDTH)))
        count = draw(st.integers(0, 70))
        seed = draw(st.integers(0, 2**32))
        common = draw(st.binary(min_size=8, max_size=8))
        found.append(weight_of(name, str(dtype), _bits(int(str(count)), WIDTH[str(dtype)], seed, common)))
    return found


def _bits(count: int, width: int, seed: object, common: object) -> bytes:
    import random

    chance = random.Random(str(seed))
    one = bytes(common)[:width]  # type: ignore[call-overload]
    return b"".join(one if chance.random() < 0.5 else chance.randbytes(width) for _ in range(count))


@st.composite
def successors(draw: Callable[..., object], before: list[Weight]) -> list[Weight]:
    """What a step may make of tensors: moved, replaced, reshaped, retyped, taken away, added, in another order."""
    import random

    chance = random.Random(str(draw(st.integers(0, 2**32))))
    after = []
    for weight in before:
        match draw(st.sampled_from(["same", "moved", "moved", "fresh", "shape", "type", "longer", "gone"])):
            case "same":
                after.append(weight)
            case "moved":
                after.append(weight_of(weight.name, weight.dtype, _moved(weight, chance)))
            case "fresh":
                after.append(weight_of(weight.name, weight.dtype, chance.randbytes(len(weight.data))))
            case "shape":
                count = len(weight.data) // WIDTH[weight.dtype]
                after.append(Weight(weight.name, weight.dtype, (1, count, 1), weight.data))
            case "type":
                other = {2: "F16", 4: "F32", 8: "F64", 1: "U8"}[WIDTH[weight.dtype]]
                after.append(weight_of(weight.name, other, weight.data))
            case "longer":
                after.append(weight_of(weight.name, weight.dtype, weight.data + bytes(WIDTH[weight.dtype])))
    if draw(st.booleans()):
        after.append(weight_of("new", "BF16", chance.randbytes(2 * chance.randrange(60))))
    if draw(st.booleans()):
        after.reverse()
    return after


def _moved(weight: Weight, chance: "object") -> bytes:
    import random

    assert isinstance(chance, random.Random)
    width, share = WIDTH[weight.dtype], chance.choice((0.02, 0.3, 0.9))
    out = bytearray(weight.data)
    for at in range(0, len(out), width):
        if chance.random() < share:
            word = int.from_bytes(out[at : at + width], "little") + chance.choice((-2, -1, 1, 2))
            out[at : at + width] = (word % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(out)


class MemoryRanges:
    """Bytes in memory, read by range."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        assert offset + length <= len(self._data)
        return self._data[offset : offset + length]


assert sys.byteorder == "little"
