"""Tensors of a version, one by one as their bytes arrive, mapped rather than copied."""

import contextlib
import importlib.util
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from protocol.errors import Code, NodeError
from shardcast.encoding import RAW, Held, parent_of, reader
from shardcast.header import Decoded
from shardcast.manifest import Manifest
from shardcast.ranges import Arrivals, FileRanges
from shardcast.stream import decode
from shardcast.tensors import TensorIndex, TensorInfo, header_size, read_index

Framework = Literal["numpy", "torch"]

_NUMPY = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "BF16": "<u2", "I32": "<i4",
    "U32": "<u4", "F32": "<f4", "I64": "<i8", "U64": "<u8", "F64": "<f8", "C64": "<c8",
}  # fmt: skip
_TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16",
    "BF16": "bfloat16", "I32": "int32", "U32": "uint32", "F32": "float32", "I64": "int64", "U64": "uint64",
    "F64": "float64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip
_SMALL = 1 << 16  # bytes of a tensor below which a mapping costs more than a copy
_PACKED = ("F4", "F6_E2M3", "F6_E3M2")  # several elements share a byte: their bytes are given, flat


def load(
    manifest: Manifest,
    path: Path,
    *,
    arrivals: Arrivals | None = None,
    parent: Held | None = None,
    framework: Framework | None = None,
) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of an object, by name, in the order of the file, each as soon as its bytes are there.

    Large tensors of a raw object are mapped and not copied; an encoded one is decoded into memory once. Tensors may be
    written to, which never changes the file. They live as long as anybody holds them, whatever becomes of its name.

    What is yielded is *the version* only when the iterator has ended: whoever swaps weights meanwhile switches to them
    then, and drops them when it raises. Blocking; for a thread.

    Args:
        manifest: Of the object.
        path: Where the object's bytes lie, or arrive.
        arrivals: Which of them are there; all, unless given. Only then may the manifest lack its close.
        parent: The file that decoding takes, if it takes one.
        framework: What the tensors are. Unless given, torch's where torch is installed, else numpy's. In numpy,
            bfloat16 is uint16 and a float of 8 bits or fewer uint8, the bits being the same.

    Raises:
        NodeError: SHC_MANIFEST, when the manifest is not closed; SHC_TENSORS, when it is no safetensors file, or not
            the one that the manifest describes; SHC_ENCODING; what `arrivals` was given as the reason why no more
            comes; SYS_MEMORY; STO_….
    """
    if arrivals is None and not manifest.closed:
        raise NodeError(Code.SHC_MANIFEST, f"The manifest of {manifest.name} is not closed.")
    make = _maker(framework)
    with FileRanges(path, arrivals, manifest.size) as ranges:
        if arrivals is None and os.fstat(ranges.fileno()).st_size != manifest.size:
            raise NodeError(
                Code.STO_CORRUPT, f"{path} has other than the {manifest.size} bytes of {manifest.name}."
            )
        if manifest.header.encoding == RAW:
            yield from _mapped(manifest, ranges, make)
        else:
            yield from _decoded(manifest, ranges, parent, make)


_Buffer = mmap.mmap | bytearray
_Make = Callable[[_Buffer, int, TensorInfo], Any]
"""From a buffer, and where in it the tensor begins."""


def _mapped(manifest: Manifest, ranges: FileRanges, make: _Make) -> Iterator[tuple[str, Any]]:
    head = ranges.read(0, min(8, ranges.size))
    for info in _index(manifest, ranges.read(0, min(header_size(head), ranges.size))):
        yield info.name, make(*_map(ranges, info), info)
    ranges.wait_whole()


def _map(ranges: FileRanges, info: TensorInfo) -> tuple[_Buffer, int]:
    """A mapping of its own for each tensor: one that is written to shares no page with one that still arrives."""
    if info.end - info.start >= _SMALL:
        ranges.wait(info.start, info.end)
        into = info.start % mmap.ALLOCATIONGRANULARITY
        size, begin = info.end - info.start + into, info.start - into
        with contextlib.suppress(OSError):  # more mappings than a process may have
            return mmap.mmap(ranges.fileno(), size, access=mmap.ACCESS_COPY, offset=begin), into
    return bytearray(ranges.read(info.start, info.end - info.start)), 0


def _decoded(
    manifest: Manifest, ranges: FileRanges, parent: Held | None, make: _Make
) -> Iterator[tuple[str, Any]]:
    header = manifest.header
    decoded = Decoded(header.encoding, header.result_size, b"", header.parent)
    with contextlib.ExitStack() as stack:
        before = parent_of(decoded, parent, stack)
        try:
            memory, at = mmap.mmap(-1, max(1, decoded.size)), 0
        except OSError as error:
            what = f"{manifest.name} decodes to {decoded.size} bytes, for which there is no memory."
            raise NodeError(Code.SYS_MEMORY, what) from error
        waiting: list[TensorInfo] | None = None
        for piece in decode(reader(ranges), before, decoded.size, manifest.result_digest):
            memory[at : at + len(piece)] = piece
            at += len(piece)
            if waiting is None and at >= 8 and at >= header_size(memory[:8]):
                waiting = list(reversed(_index(manifest, memory[: header_size(memory[:8])])))
            while waiting and waiting[-1].end <= at:
                info = waiting.pop()
                yield info.name, make(memory, info.start, info)
        if waiting is None:
            raise NodeError(Code.SHC_TENSORS, f"{manifest.name} is no safetensors file.")
    ranges.wait_whole()


def _index(manifest: Manifest, head: bytes) -> TensorIndex:
    index = read_index(head, manifest.header.result_size)
    if manifest.header.tensors not in (None, index):
        raise NodeError(
            Code.SHC_TENSORS, f"The tensors of {manifest.name} are others than its manifest says."
        )
    return index


def _maker(framework: Framework | None) -> _Make:
    if framework is None:
        framework = "torch" if importlib.util.find_spec("torch") is not None else "numpy"
    return _torch if framework == "torch" else _numpy


def _numpy(buffer: _Buffer, offset: int, info: TensorInfo) -> Any:
    dtype = np.dtype(_NUMPY.get(info.dtype, "u1"))
    flat = np.frombuffer(buffer, dtype, (info.end - info.start) // dtype.itemsize, offset)
    return flat if info.dtype in _PACKED else flat.reshape(info.shape)


def _torch(buffer: _Buffer, offset: int, info: TensorInfo) -> Any:
    import torch

    dtype = getattr(torch, _TORCH.get(info.dtype, "uint8"))
    count = (info.end - info.start) // dtype.itemsize
    flat = torch.empty(0, dtype=dtype)
    if count:
        flat = torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset)
    return flat if info.dtype in _PACKED else flat.reshape(info.shape)
