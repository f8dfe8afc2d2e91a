"""The canonical flat layout of a model's parameters, and the grid of chunks over it.

All outer state of a run is one flat fp32 vector: parameters in declaration order, each row-major, tied
parameters once, no buffers. Everything that is exchanged or hashed is a run of chunks of that vector.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from protocol.errors import Code, NodeError
from protocol.units import Digest

BLOCK: Final = 256
"""Values that a block codec encodes under one scale; every chunk of a grid is a multiple of it. It stands here so that
a worker, which needs the layout only, does not load the codecs' compiler."""

# Within classes that have an attribute of that name.
_Slice: TypeAlias = slice

_DIGEST_CONTEXT = "intellect-node layout v1"
_MAX_NAME_BYTES = 1024
_MAX_DIMENSIONS = 16
_MAX_VALUES = 2**40


@dataclass(frozen=True)
class Slot:
    """One parameter's place.

    Attributes:
        name: As the model names it.
        shape: Its shape; empty for a scalar.
        offset: Its first value in the flat vector.
        size: Number of its values.
    """

    name: str
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def slice(self) -> _Slice:
        """Its values in the flat vector."""
        return slice(self.offset, self.offset + self.size)

    def rows(self, first: int, count: int) -> _Slice:
        """The values of ``count`` rows (of dimension 0) from ``first`` on: what one shard of FSDP2 holds.

        Raises:
            ValueError: The parameter has no such rows.
        """
        total = self.shape[0] if self.shape else 1
        if first < 0 or count < 0 or first + count > total:
            raise ValueError(f"{self.name} has {total} rows, not {first} to {first + count}")
        width = self.size // total if total else 0
        return slice(self.offset + first * width, self.offset + (first + count) * width)


@dataclass(frozen=True)
class Layout:
    """All parameters in order.

    Attributes:
        parameters: Their slots, without gap or overlap.
        size: Number of values of the flat vector.
    """

    parameters: tuple[Slot, ...]
    size: int

    @classmethod
    def of(cls, named_shapes: Iterable[tuple[str, Sequence[int]]]) -> "Layout":
        """Lay out parameters in the order given, which is the model's declaration order.

        Args:
            named_shapes: Name and shape of each parameter, a tied one under one name only (as
                ``Module.named_parameters()`` gives them).

        Raises:
            NodeError: ``TRN_MODEL``: a name comes twice or is empty or too long, a dimension is negative, or
                there is no parameter at all.
        """
        slots: list[Slot] = []
        seen: set[str] = set()
        offset = 0
        for name, dimensions in named_shapes:
            shape = tuple(int(dimension) for dimension in dimensions)
            if not name or len(name.encode()) > _MAX_NAME_BYTES or name in seen:
                raise NodeError(
                    Code.TRN_MODEL, f"The parameter name {name[:80]!r} is empty, too long or comes twice."
                )
            if len(shape) > _MAX_DIMENSIONS or any(dimension < 0 for dimension in shape):
                raise NodeError(Code.TRN_MODEL, f"The parameter {name!r} cannot have the shape {shape}.")
            seen.add(name)
            size = math.prod(shape)
            slots.append(Slot(name, shape, offset, size))
            offset += size
        if not 0 < offset <= _MAX_VALUES:
            raise NodeError(Code.TRN_MODEL, f"A model of {offset} parameter values cannot be laid out.")
        return cls(tuple(slots), offset)

    @property
    def digest(self) -> Digest:
        """BLAKE3 of names and shapes in order; part of the genesis."""
        hasher = blake3(derive_key_context=_DIGEST_CONTEXT)
        for slot in self.parameters:
            name = slot.name.encode()
            for number in (len(name), len(slot.shape), *slot.shape):
                hasher.update(number.to_bytes(8, "little"))
            hasher.update(name)
        return Digest(hasher.digest())

    def slot(self, name: str) -> Slot:
        """The slot of that name.

        Raises:
            KeyError: There is none.
        """
        for slot in self.parameters:
            if slot.name == name:
                return slot
        raise KeyError(name)

    def views(self, flat: npt.NDArray[np.float32]) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
        """Each parameter's name and values, in its shape; views, no copies.

        Args:
            flat: Array of shape ``(size,)``.

        Raises:
            ValueError: The vector has another size.
        """
        if flat.shape != (self.size,):
            raise ValueError(f"the layout has {self.size} values, the vector the shape {flat.shape}")
        for slot in self.parameters:
            yield slot.name, flat[slot.slice].reshape(slot.shape)


@dataclass(frozen=True)
class Grid:
    """A flat vector cut into chunks of equal size, the last one shorter; fixed by the genesis.

    Attributes:
        size: Number of values.
        chunk: Values of one chunk, a multiple of the codec's block.
    """

    size: int
    chunk: int

    def __post_init__(self) -> None:
        """Refuse a grid whose chunks would cut a codec's block.

        Raises:
            ValueError: ``chunk`` is no positive multiple of the block, or there is no value.
        """
        if self.chunk <= 0 or self.chunk % BLOCK:
            raise ValueError(f"a chunk must be a positive multiple of {BLOCK} values, not {self.chunk}")
        if self.size <= 0:
            raise ValueError(f"a grid needs at least one value, not {self.size}")

    @property
    def count(self) -> int:
        """Number of chunks."""
        return -(-self.size // self.chunk)

    def slice(self, index: int) -> _Slice:
        """The values of one chunk.

        Raises:
            IndexError: There is no such chunk.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"chunk {index} of {self.count}")
        return slice(index * self.chunk, min((index + 1) * self.chunk, self.size))

    def length(self, index: int) -> int:
        """Number of values of one chunk.

        Raises:
            IndexError: There is no such chunk.
        """
        part = self.slice(index)
        return int(part.stop - part.start)

    def slices(self) -> Iterator[_Slice]:
        """The values of all chunks in order."""
        return (self.slice(index) for index in range(self.count))
