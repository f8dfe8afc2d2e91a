"""The second scheme: a fingerprint of every token instead of the largest activations of a chunk.

Each token's last hidden state is projected on a few seeded random directions of signs, and of each projection only
four bits are kept: which of 16 neighbouring steps it falls on, counted round and round. The verifier, who knows the
projection to within a few steps, sees the difference; the high bits would tell nothing new. So the bytes that hold 128
points per chunk hold 512, each an average over all channels, and changes too light for the first scheme show.
After the activation fingerprints of arXiv 2511.20621; keeping residues only is this package's own.

A proof: 1 byte version, 1 byte dimensions, 1 signed byte step exponent, 1 byte zero, big-endian 16-bit rows; then per
row the dimensions' residues, two in a byte, the first in the low half.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from toploc.chunks import Activations, check_type, chunk_bounds

VERSION = 1
HEADER = 6
RESIDUES = 16
MAX_ROWS = 0xFFFF


@dataclass(frozen=True, slots=True)
class Projection:
    """What prover and verifier agree on.

    Attributes:
        seed: chooses the directions; both sides hold the same.
        dimensions: directions per token: even, 2 to 254; half a byte each. Longer texts need fewer.
        step_exponent: the step is two to this power. Best is about the honest root mean square difference of a
            hidden state's element (``fitting`` finds it).
    """

    seed: str = "toploc"
    dimensions: int = 16
    step_exponent: int = -5

    def __post_init__(self) -> None:
        """Refuse what a proof cannot say.

        Raises:
            ValueError: dimensions or exponent out of range.
        """
        if not isinstance(self.seed, str):
            raise ValueError(f"seed must be a text, not {self.seed!r}")
        if type(self.dimensions) is not int or type(self.step_exponent) is not int:
            raise ValueError("dimensions and step_exponent must be whole numbers")
        if not 2 <= self.dimensions <= 254 or self.dimensions % 2:
            raise ValueError(f"dimensions must be even and from 2 to 254, not {self.dimensions}")
        if not -128 <= self.step_exponent <= 127:
            raise ValueError(f"step_exponent must be from -128 to 127, not {self.step_exponent}")

    @classmethod
    def fitting(
        cls, honest: Sequence[tuple[torch.Tensor, torch.Tensor]], seed: str = "toploc", dimensions: int = 16
    ) -> Self:
        """With the step nearest to the honest difference of ``(prover, verifier)`` states of the same tokens.

        Raises:
            ValueError: they do not differ at all, or are not of the same shape, or hold NaN or infinity.
        """
        if any(ours.shape != theirs.shape for ours, theirs in honest):
            raise ValueError("a pair of honest states is not of one shape")
        squares = [float((ours.float() - theirs.float()).square().mean()) for ours, theirs in honest]
        mean = sum(squares) / max(1, len(squares))
        if not 0 < mean < math.inf:
            raise ValueError(f"honest states whose mean square difference is {mean} fit no step")
        return cls(seed, dimensions, max(-128, min(127, round(math.log2(math.sqrt(mean))))))

    def project(self, rows: torch.Tensor) -> npt.NDArray[np.float32]:
        """``rows[T, H]`` on the directions, in steps: float32 [T, dimensions]."""
        signs = _signs(self.seed, self.dimensions, rows.shape[1], str(rows.device))
        scale = 2.0**-self.step_exponent / math.sqrt(rows.shape[1])
        projected: npt.NDArray[np.float32] = ((rows.detach().float() @ signs) * scale).cpu().numpy()
        return projected


@lru_cache(maxsize=8)
def _signs(seed: str, dimensions: int, hidden: int, device: str) -> Any:
    """Directions: float32 [hidden, dimensions] of 1 and -1, bits of SHAKE-256."""
    label = f"toploc.projection.{VERSION}\0{hidden}\0{dimensions}\0{seed}".encode()
    stream = hashlib.shake_256(label).digest(-(-hidden * dimensions // 8))
    bits = np.unpackbits(np.frombuffer(stream, np.uint8), count=hidden * dimensions)
    return torch.from_numpy((bits.astype(np.float32) * 2 - 1).reshape(hidden, dimensions)).to(device)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A decoded proof.

    Attributes:
        step_exponent: see ``Projection``.
        residues: uint8 [rows, dimensions], below 16.
    """

    step_exponent: int
    residues: npt.NDArray[np.uint8] = field(repr=False)

    def to_bytes(self) -> bytes:
        """The proof's bytes: 6, and half a byte per row and dimension."""
        rows, dimensions = self.residues.shape
        head: bytes = bytes([VERSION, dimensions, self.step_exponent & 0xFF, 0]) + rows.to_bytes(2, "big")
        packed = np.bitwise_or(self.residues[:, 0::2], self.residues[:, 1::2] << 4)
        return head + bytes(packed.astype(np.uint8))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Self:
        """The fingerprint that ``data`` encodes.

        Raises:
            TypeError: not bytes.
            ValueError: not exactly what ``to_bytes`` gives.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"a proof is bytes, not {type(data).__name__}")
        data = bytes(data)
        if len(data) < HEADER or data[0] != VERSION or data[3] != 0:
            raise ValueError("not a projection proof of this version")
        dimensions, rows = data[1], int.from_bytes(data[4:6], "big")
        if dimensions < 2 or dimensions % 2 or len(data) != HEADER + rows * dimensions // 2:
            raise ValueError(f"{len(data)} bytes do not hold {rows} rows of {dimensions} dimensions")
        packed = np.frombuffer(data, np.uint8, offset=HEADER).reshape(rows, dimensions // 2)
        residues = np.empty((rows, dimensions), np.uint8)
        residues[:, 0::2] = packed & 15
        residues[:, 1::2] = packed >> 4
        return cls(data[2] - 256 if data[2] > 127 else data[2], residues)

    def differences(self, projected: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Claimed less the verifier's own, in steps, in [-8, 8): float64 [rows, dimensions]."""
        half = RESIDUES / 2
        apart = np.mod(self.residues - projected.astype(np.float64) + half, RESIDUES) - half
        return np.asarray(apart, np.float64)


def fingerprint(rows: torch.Tensor, projection: Projection) -> Fingerprint:
    """The proof of one chunk ``[T, H]``; where a projection is not finite, the residue is 0.

    Raises:
        ValueError: more than 65,535 rows.
    """
    if rows.shape[0] > MAX_ROWS:
        raise ValueError(f"a proof holds at most {MAX_ROWS} rows, not {rows.shape[0]}")
    steps = np.nan_to_num(np.floor(projection.project(rows) + 0.5), nan=0.0, posinf=0.0, neginf=0.0)
    return Fingerprint(projection.step_exponent, np.mod(steps, RESIDUES).astype(np.uint8))


def build_fingerprints(
    activations: Activations, decode_batching_size: int, projection: Projection, skip_prefill: bool = False
) -> list[bytes]:
    """Proofs of this scheme, chunk by chunk; arguments as for ``toploc.build_proofs``.

    Raises:
        TypeError: not tensors of a supported type.
        ValueError: ``decode_batching_size`` is below 1, a prefill has more than 65,535 rows, a tensor has no channels,
            or widths differ.
    """
    chunks = chunk_rows(activations, decode_batching_size, skip_prefill)
    return [fingerprint(rows, projection).to_bytes() for rows in chunks]


def chunk_rows(activations: Activations, decode_batching_size: int, skip_prefill: bool) -> list[torch.Tensor]:
    """Each chunk as rows ``[T, H]``.

    Raises:
        TypeError: as ``build_fingerprints``.
        ValueError: as ``build_fingerprints``.
    """
    if isinstance(activations, torch.Tensor) and activations.dim() != 2:
        raise ValueError(f"activations must be [T, H], not {tuple(activations.shape)}")
    rows = []
    for start, stop in chunk_bounds(len(activations), decode_batching_size, skip_prefill):
        chunk = activations[start:stop]
        steps = [chunk] if isinstance(chunk, torch.Tensor) else chunk
        for step in steps:
            check_type(step)
        widths = {step.shape[-1] if step.dim() else 0 for step in steps}
        if len(widths) > 1 or 0 in widths:
            raise ValueError(f"activations need one number of channels, not {sorted(widths)}")
        flat = [step.reshape(-1, step.shape[-1]) for step in steps]
        rows.append(flat[0] if len(flat) == 1 else torch.cat(flat))
    return rows
