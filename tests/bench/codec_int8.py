"""int8 encode and decode against memcpy and the torch expression that anyone would write first.

Everything runs on one thread, on a chunk of the size that models of more than 100 million parameters use
(2**20 values) and on a vector that no cache holds (2**24). Throughput counts the fp32 bytes on the plain
side. memcpy copies the same fp32 bytes, so it is a bound of what memory gives; encoding reads as much and
writes a quarter of it. Both sides have their memory already, except where a name says otherwise. Ours does
more than its peers: encoding refuses values that are not finite, decoding first checks every byte.
"""

import numpy as np
import torch

from diloco.codec import Floats, codec
from diloco.outer_step import outer_step
from tests.bench.measurement import Measurement, seconds_per_call

SIZES = {"chunk": 2**20, "vector": 2**24}
BLOCK = 256


def torch_encode(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and levels by the naive expression."""
    blocks = values.view(-1, BLOCK)
    scales = blocks.abs().amax(dim=1, keepdim=True) / 127
    return scales, torch.round(blocks / scales).clamp(-127, 127).to(torch.int8)


def torch_decode(scales: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
    """Values by the naive expression."""
    return (levels.float() * scales).view(-1)


def run() -> Measurement:
    """Measure; takes about ten seconds."""
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for size_name, n in SIZES.items():
        values = (1e-3 * np.random.default_rng(0).standard_t(3, n)).astype(np.float32)
        ours = ours_of(values)
        others = peers_of(values)
        figures |= {f"{name}_{size_name}_gb_per_s": speed for name, speed in ours.items()}
        peers |= {f"{name}_{size_name}_gb_per_s": speed for name, speed in others.items()}
        for what in ("encode", "decode"):
            ratios[f"{what}_{size_name}_vs_memcpy"] = ours[what] / others["memcpy"]
            ratios[f"{what}_{size_name}_vs_torch"] = ours[what] / others[f"torch_{what}"]
    return Measurement(figures=figures, peers=peers, ratios=ratios)


def ours_of(values: Floats) -> dict[str, float]:
    """GB/s of our codec and of what follows it in a round."""
    int8 = codec("int8")
    data = int8.encode(values)
    frame = bytearray(len(data))
    out, params, momentum = np.zeros_like(values), np.zeros_like(values), np.zeros_like(values)
    calls = {
        "encode": lambda: int8.encode_into(values, frame),
        "encode_to_new_bytes": lambda: int8.encode(values),
        "decode": lambda: int8.decode_into(data, out),
        "blend": lambda: int8.blend(out, data, 0.25),
        "outer_step": lambda: outer_step(params, momentum, values, 0.7, 0.9, params, momentum),
    }
    return {name: values.nbytes / seconds_per_call(call) / 1e9 for name, call in calls.items()}


def peers_of(values: Floats) -> dict[str, float]:
    """GB/s of memcpy and of torch on the same values."""
    tensor, out = torch.from_numpy(values), np.zeros_like(values)
    scales, levels = torch_encode(tensor)
    calls = {
        "memcpy": lambda: np.copyto(out, values),
        "torch_encode": lambda: torch_encode(tensor),
        "torch_decode": lambda: torch_decode(scales, levels),
    }
    return {name: values.nbytes / seconds_per_call(call) / 1e9 for name, call in calls.items()}
