"""A model's weights in the form that the forward pass reads, and the files they come from."""

import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from blake3 import blake3
from torch.nn.functional import linear, silu

from protocol.errors import Code, NodeError
from protocol.units import Digest
from rl.engine.shape import Shape
from shardcast.digest import file_digest
from shardcast.tensors import TensorInfo, header_size, read_index

Kind: TypeAlias = Literal["float32", "bfloat16"]
"""What the engine computes in."""

KINDS: Final[dict[Kind, torch.dtype]] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_STORED = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


class Linear:
    """A matrix that is multiplied from the right, packed for oneDNN where torch has it.

    Packed products are two times faster than plain ones on some processors. A row of the result does not depend on the
    rows beside it, as long as there are at least `LEAST_ROWS`; what is done to the result in the same call keeps that.
    """

    __slots__ = ("_packed", "_plain")

    def __init__(self, weight: torch.Tensor) -> None:
        """Take a matrix [out, in]."""
        self._plain: torch.Tensor | None = None
        self._packed: Any = None
        if weight.device.type == "cpu" and torch.backends.mkldnn.is_available():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 16)
        else:
            self._plain = weight.contiguous()

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """[n, in] to [n, out]."""
        if self._plain is not None:
            return linear(rows, self._plain)
        return torch.ops.mkldnn._linear_pointwise(rows, self._packed, None, "none", [], "")

    def gated(self, rows: torch.Tensor) -> torch.Tensor:
        """SiLU of the product."""
        if self._plain is not None:
            return silu(linear(rows, self._plain))
        return torch.ops.mkldnn._linear_pointwise(rows, self._packed, None, "swish", [], "")

    def times(self, rows: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The product, times other values element by element."""
        if self._plain is not None:
            return linear(rows, self._plain) * other
        return torch.ops.mkldnn._linear_pointwise.binary(rows, other, self._packed, None, "mul")

    def plus(self, rows: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The product, plus other values."""
        if self._plain is not None:
            return linear(rows, self._plain) + other
        return torch.ops.mkldnn._linear_pointwise.binary(rows, other, self._packed, None, "add")


LEAST_ROWS: Final = 4
"""Products of fewer rows may take another way through the library, with other last bits."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One decoder layer."""

    before: torch.Tensor
    qkv: Linear
    out: Linear
    after: torch.Tensor
    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True, eq=False)
class Weights:
    """A whole model, ready to run.

    Attributes:
        shape: Its sizes.
        embedding: [V, H].
        layers: Its layers.
        norm: [H], of the final norm.
        head: H to V.
        turns: float32[2, context, head / 2]: cosine and sine of the rotary positions.
    """

    shape: Shape
    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: Linear
    turns: torch.Tensor

    @property
    def kind(self) -> torch.dtype:
        """What it computes in."""
        return self.embedding.dtype


def assemble(
    shape: Shape, tensor: Callable[[str], torch.Tensor], kind: Kind = "float32", device: str = "cpu"
) -> Weights:
    """Bring tensors into the form of the forward pass.

    Args:
        shape: Sizes.
        tensor: A tensor of that name and the shape that `Shape.named_shapes` says, of any floating type.
        kind: What to compute in.
        device: Where.

    Raises:
        NodeError: ``RL_WEIGHTS``: a value is not finite.
    """
    dtype = KINDS[kind]

    def take(*names: str) -> torch.Tensor:
        parts = [tensor(name).to(device=device, dtype=dtype) for name in names]
        for name, part in zip(names, parts, strict=True):
            if not torch.isfinite(part).all():
                raise NodeError(Code.RL_WEIGHTS, f"The tensor {name} holds values that are not finite.")
        return parts[0].clone() if len(parts) == 1 else torch.cat(parts)

    layers = []
    for number in range(shape.layers):
        prefix = f"model.layers.{number}."
        attention, feed = prefix + "self_attn.", prefix + "mlp."
        layers.append(
            Layer(
                before=take(f"{prefix}input_layernorm.weight"),
                qkv=Linear(take(*(f"{attention}{each}_proj.weight" for each in "qkv"))),
                out=Linear(take(f"{attention}o_proj.weight")),
                after=take(f"{prefix}post_attention_layernorm.weight"),
                gate=Linear(take(f"{feed}gate_proj.weight")),
                up=Linear(take(f"{feed}up_proj.weight")),
                down=Linear(take(f"{feed}down_proj.weight")),
            )
        )
    embedding = take("model.embed_tokens.weight")
    head = Linear(embedding if shape.tie else take("lm_head.weight"))
    steps = torch.arange(0, shape.head, 2, dtype=torch.int64).float() / shape.head
    angles = torch.outer(torch.arange(shape.context).float(), 1.0 / shape.theta**steps)
    turns = torch.stack([angles.cos(), angles.sin()]).to(device)
    return Weights(shape, embedding, tuple(layers), take("model.norm.weight"), head, turns)


def from_flat(
    shape: Shape, flat: npt.NDArray[np.float32], kind: Kind = "float32", device: str = "cpu"
) -> Weights:
    """The model whose parameters are one flat vector in declaration order, as a run's outer state is.

    Raises:
        NodeError: ``RL_WEIGHTS``: the vector has another length, or a value that is not finite.
    """
    views: dict[str, torch.Tensor] = {}
    offset = 0
    whole = torch.from_numpy(flat)
    for name, sizes in shape.named_shapes():
        count = int(np.prod(sizes))
        views[name] = whole[offset : offset + count].view(sizes) if offset + count <= len(flat) else whole
        offset += count
    if offset != len(flat):
        raise NodeError(Code.RL_WEIGHTS, f"The model has {offset} parameters, the vector {len(flat)}.")
    return assemble(shape, views.__getitem__, kind, device)


def from_file(
    path: Path, shape: Shape, kind: Kind = "float32", digest: Digest | None = None, device: str = "cpu"
) -> Weights:
    """The model of a safetensors file. The file is verified before any of it is used.

    Args:
        path: The file.
        shape: What it must hold, nothing more and nothing less.
        kind: What to compute in.
        digest: The file digest, where it is known.
        device: Where to compute.

    Raises:
        NodeError: ``RL_WEIGHTS``: it cannot be read, is another file, or holds other tensors, or numbers that are none.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            data = memoryview(mapped)
            try:
                if digest is not None and file_digest(data, max_threads=blake3.AUTO) != digest:
                    raise NodeError(
                        Code.RL_WEIGHTS, f"{path.name} is not the file whose digest was announced."
                    )
                places = _places(data, dict(shape.named_shapes()))
                return assemble(shape, lambda name: _tensor(data, places[name]), kind, device)
            finally:
                data.release()
    except (OSError, ValueError) as error:
        raise NodeError(Code.RL_WEIGHTS, f"{path.name} cannot be read: {error}.") from None


def _places(data: memoryview, wanted: Mapping[str, tuple[int, ...]]) -> dict[str, TensorInfo]:
    found = {info.name: info for info in read_index(bytes(data[: header_size(bytes(data[:8]))]), len(data))}
    missing, beyond = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    if missing or beyond:
        what = f"lacks {missing[0]}" if missing else f"has {beyond[0][:80]}, which the model has not"
        raise NodeError(Code.RL_WEIGHTS, f"The file {what}.")
    for name, shape in wanted.items():
        if found[name].dtype not in _STORED or found[name].shape != shape:
            raise NodeError(
                Code.RL_WEIGHTS, f"The tensor {name} is not {list(shape)} floating-point numbers."
            )
    return found


def _tensor(data: memoryview, info: TensorInfo) -> torch.Tensor:
    # A copy: the file may be changed or cut while it is mapped, and offsets need not be aligned.
    return torch.frombuffer(bytearray(data[info.start : info.end]), dtype=_STORED[info.dtype]).view(
        info.shape
    )
