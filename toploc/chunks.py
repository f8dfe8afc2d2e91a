"""From tensors to what the kernels read: the memory of each chunk as addresses and lengths, or an accelerator's pick.

A chunk is what one proof covers: the prefill, or up to ``decode_batching_size`` decode steps. Its elements are
numbered in row-major order over its tensors, one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from toploc.selection import BFLOAT16, FLOAT16, FLOAT32, select

Activations: TypeAlias = torch.Tensor | Sequence[torch.Tensor]
"""One tensor per step (``[H]`` or ``[1, H]``; the first may be a prefill ``[T, H]``), or one ``[T, H]`` tensor."""

_ON_CPU = attrgetter("is_cpu")
_KINDS = {torch.bfloat16: BFLOAT16, torch.float16: FLOAT16, torch.float32: FLOAT32}


@dataclass(frozen=True, slots=True)
class Picked:
    """The largest magnitudes of one chunk.

    Attributes:
        indices: int64, ascending positions in the chunk.
        bits: uint16, bit patterns of those elements: float16, or else bfloat16.
        size: how many elements the chunk has.
        half: the patterns are float16.
    """

    indices: npt.NDArray[np.int64]
    bits: npt.NDArray[np.uint16]
    size: int
    half: bool = False


def check_type(tensor: object) -> None:
    """Refuse what proofs are not made of.

    Raises:
        TypeError: not a tensor, not bfloat16, float16 or float32, sparse, or without memory of its own.
    """
    kind = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor)
    if kind not in _KINDS:
        raise TypeError(f"activations must be bfloat16, float16 or float32 tensors, not {kind}")
    if isinstance(tensor, torch.Tensor) and (tensor.layout is not torch.strided or tensor.is_meta):
        raise TypeError(f"activations must be dense tensors, not {tensor.layout} on {tensor.device}")


def chunk_bounds(steps: int, decode_batching_size: int, skip_prefill: bool) -> list[tuple[int, int]]:
    """First and last (exclusive) step of every chunk.

    Raises:
        ValueError: ``decode_batching_size`` is below 1.
    """
    if decode_batching_size < 1:
        raise ValueError(f"decode_batching_size must be at least 1, not {decode_batching_size}")
    first = [] if skip_prefill or steps == 0 else [(0, 1)]
    begin = 0 if skip_prefill else 1
    return first + [
        (start, min(start + decode_batching_size, steps))
        for start in range(begin, steps, decode_batching_size)
    ]


def pick_chunks(
    activations: Activations, decode_batching_size: int, topk: int, skip_prefill: bool
) -> list[Picked]:
    """The ``topk`` largest magnitudes of every chunk; all of a chunk that has fewer.

    Raises:
        TypeError: something is not a tensor, or not bfloat16, float16 or float32, or the types differ.
        ValueError: ``topk`` or ``decode_batching_size`` is below 1.
    """
    if topk < 1:
        raise ValueError(f"topk must be at least 1, not {topk}")
    if isinstance(activations, torch.Tensor):
        check_type(activations)
        if activations.dim() == 0:
            raise TypeError("activations must have at least one dimension")
    bounds = chunk_bounds(len(activations), decode_batching_size, skip_prefill)
    return [pick(activations[start:stop], topk) for start, stop in bounds]


def pick(chunk: Activations, topk: int) -> Picked:
    """The ``topk`` largest magnitudes of one chunk, ties to the lowest index.

    Raises:
        TypeError: as ``pick_chunks``.
    """
    tensors: Sequence[torch.Tensor] = (chunk,) if isinstance(chunk, torch.Tensor) else chunk
    if not tensors:
        return Picked(np.empty(0, np.int64), np.empty(0, np.uint16), 0)
    check_type(tensors[0])
    dtype = tensors[0].dtype
    for tensor in tensors:
        if getattr(tensor, "dtype", None) is not dtype:
            check_type(tensor)
            raise TypeError(f"activations of one chunk must have one type, not {dtype} and {tensor.dtype}")
    if not all(map(_ON_CPU, tensors)):
        for tensor in tensors:
            check_type(tensor)
        return _pick_on_device(tensors, topk)
    kind = _KINDS[dtype]
    alive: list[torch.Tensor] = []
    if all(map(torch.Tensor.is_contiguous, tensors)):
        addresses = list(map(torch.Tensor.data_ptr, tensors))
        lengths = list(map(torch.Tensor.numel, tensors))
    else:
        addresses, lengths = [], []
        for tensor in tensors:
            check_type(tensor)
            _append(tensor, addresses, lengths, alive)
    size = sum(lengths)
    keep = min(topk, size)
    indices = np.empty(keep, np.int64)
    bits = np.empty(keep, np.uint16)
    if keep:
        where = np.array(addresses, np.int64)
        select(where, np.array(lengths, np.int64), kind, indices, bits)
    return Picked(indices, bits, size, kind == FLOAT16)


def _append(
    tensor: torch.Tensor, addresses: list[int], lengths: list[int], alive: list[torch.Tensor]
) -> None:
    """What lies whole in memory, or row by row, is read where it is; anything else is copied."""
    if tensor.dim() == 2 and tensor.stride(1) == 1 and not tensor.is_contiguous():
        step = tensor.stride(0) * tensor.element_size()
        start = tensor.data_ptr()
        addresses.extend(start + step * row for row in range(tensor.shape[0]))
        lengths.extend([tensor.shape[1]] * tensor.shape[0])
        return
    compact = tensor.contiguous()
    alive.append(compact)
    addresses.append(compact.data_ptr())
    lengths.append(compact.numel())


def _pick_on_device(tensors: Sequence[torch.Tensor], topk: int) -> Picked:
    """The same pick with torch, where the tensors live; only the picked elements come to the host."""
    sizes = [tensor.numel() for tensor in tensors]
    keep = min(topk, sum(sizes))
    if keep == 0:
        return Picked(np.empty(0, np.int64), np.empty(0, np.uint16), sum(sizes))
    # The k largest of each tensor hold the k largest of the chunk, so nothing is concatenated but picks.
    starts = [0, *accumulate(sizes[:-1])]
    found = [_largest(tensor.reshape(-1), min(keep, tensor.numel())) for tensor in tensors if tensor.numel()]
    offsets = [start for start, size in zip(starts, sizes, strict=True) if size]
    indices = torch.cat([places + offset for (places, _), offset in zip(found, offsets, strict=True)])
    bits = torch.cat([values for _, values in found])
    if indices.numel() > keep:
        places = _ordered_top(bits & 0x7FFF, keep)
        indices, bits = indices[places], bits[places]
    half = tensors[0].dtype is torch.float16
    return Picked(indices.cpu().numpy(), bits.cpu().numpy().astype(np.uint16), sum(sizes), half)


def _largest(flat: torch.Tensor, keep: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions (int64, ascending) and bits (int32) of the ``keep`` largest magnitudes."""
    narrow = flat.to(torch.bfloat16) if flat.dtype is torch.float32 else flat
    words = narrow.view(torch.int16).to(torch.int32) & 0xFFFF
    if flat.dtype is torch.float32:  # a rounded NaN has one pattern, whatever the device would give
        words = torch.where(flat.isnan(), torch.full_like(words, 0x7FC0), words)
    places = _ordered_top(words & 0x7FFF, keep)
    return places, words[places]


def _ordered_top(magnitudes: torch.Tensor, keep: int) -> torch.Tensor:
    """Positions (ascending) of the ``keep`` largest, ties to the lowest position."""
    least = magnitudes.topk(keep).values[-1]
    above = (magnitudes > least).nonzero().reshape(-1)
    ties = (magnitudes == least).nonzero().reshape(-1)[: keep - above.numel()]
    return torch.cat([above, ties]).sort().values
