"""A model's weights as one safetensors file, by the names that `transformers` gives them. No torch is needed.

What is read may come from anyone: the header is checked before anything is allocated, and nothing is ever unpickled.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from diloco.layout import Layout
from protocol.errors import Code, NodeError
from protocol.files import storage_error, write_whole
from shardcast.tensors import TensorIndex, header_size, read_index

_BYTES = {"F32": 4, "BF16": 2}


def write_weights(
    path: Path, layout: Layout, params: npt.NDArray[np.float32], dtype: Literal["F32", "BF16"] = "F32"
) -> None:
    """Write a file that is seen whole or not at all. The same weights give the same bytes.

    Args:
        path: Where to.
        layout: The model's layout.
        params: float32[parameters] in its order.
        dtype: "BF16" rounds each value to the nearest bfloat16, ties to even.

    Raises:
        NodeError: ``STO_FULL``, ``STO_UNWRITABLE`` or ``STO_CORRUPT``.
    """
    write_whole(path, _parts(layout, params, dtype))


def read_weights(path: Path, layout: Layout) -> npt.NDArray[np.float32]:
    """Read the weights of a model from a file of either precision.

    Args:
        path: A safetensors file.
        layout: The model's layout.

    Returns:
        float32[parameters] in layout order.

    Raises:
        NodeError: As `parse_weights`; ``STO_UNWRITABLE`` or ``STO_CORRUPT`` when the file cannot be read.
    """
    try:
        data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        return parse_weights(data, layout, str(path))
    except OSError as error:
        raise storage_error(error, path, "read") from error


def parse_weights(data: npt.NDArray[np.uint8], layout: Layout, name: str) -> npt.NDArray[np.float32]:
    """The weights in the bytes of such a file.

    Args:
        data: uint8, the whole file.
        layout: The model's layout.
        name: What to call it in an error.

    Returns:
        float32[parameters] in layout order.

    Raises:
        NodeError: ``TRN_MODEL`` when these are not the weights of this model, or a value is not finite.
    """
    index = {info.name: info for info in _index(name, data, layout)}
    values = np.empty(layout.size, np.float32)
    for slot in layout.parameters:
        info = index[slot.name]
        raw = data[info.start : info.end]
        if info.dtype == "F32":
            values[slot.slice] = raw.view("<f4")
        else:
            values[slot.slice] = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if not np.isfinite(values).all():
        raise NodeError(Code.TRN_MODEL, f"The weights in {name} are not all finite.")
    return values


def _parts(layout: Layout, params: npt.NDArray[np.float32], dtype: str) -> Iterator[bytes]:
    """The bytes of the file: length of the header, header, values of all parameters in layout order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for slot in layout.parameters:
        end = at + slot.size * _BYTES[dtype]
        header[slot.name] = {"dtype": dtype, "shape": list(slot.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the values lie where their width divides
    yield len(text).to_bytes(8, "little") + text
    for _, values in layout.views(params):
        yield (values.astype("<f4") if dtype == "F32" else _bfloat16(values)).tobytes()


def _bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The upper halves of float32s, rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def _index(name: str, data: npt.NDArray[np.uint8], layout: Layout) -> TensorIndex:
    """The index of a file that holds this layout's tensors and nothing else.

    Raises:
        NodeError: ``TRN_MODEL``.
    """
    try:
        head = header_size(data[:8].tobytes())
        index = read_index(data[:head].tobytes(), len(data))
    except NodeError as error:
        raise NodeError(Code.TRN_MODEL, f"{name} holds no weights: {error.sentence}") from None
    wanted = {slot.name: slot.shape for slot in layout.parameters}
    if {info.name: info.shape for info in index} != wanted or any(info.dtype not in _BYTES for info in index):
        raise NodeError(Code.TRN_MODEL, f"The tensors in {name} are not those of this run's model.")
    return index
