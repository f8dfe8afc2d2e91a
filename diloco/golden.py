"""Golden vectors of bits: what this machine computes is compared with what every machine has to compute.

Members compare digests, so one processor, compiler or library that rounds otherwise would be told that it
diverged, over and over, without a cause. This finds it at start, before anything is exchanged. Inputs come
from integer arithmetic, not from a random generator whose stream a library may change. They are long enough
to have both the vectorized body and the tail of every loop, and hold zeros, ties, denormals and values of
very different size; an outer step or a weighted sum with fused multiply-add does not pass.

``python -m diloco.golden`` runs the check, which also fills the cache of compiled kernels, and
``python -m diloco.golden --print`` prints the table after a deliberate change of a format.
"""

import platform
import sys
from collections.abc import Callable
from typing import get_args

import numba
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from diloco.aggregate import Aggregation, reduce_chunk
from diloco.codec import CODECS
from diloco.digest import state_digest
from diloco.layout import Grid
from diloco.norm import squared_norm
from diloco.outer_step import outer_step
from protocol.errors import Code, NodeError

_Floats = npt.NDArray[np.float32]

_SIZE = 1237
_PEERS = 3
_WEIGHTS = (4096, 1000, 2731)
_CLIPS = (1.0, 0.2998046875, 1.0, 0.75, 0.0625, 1.0, 1.0)

GOLDEN: dict[str, str] = {
    "outer-step": "6036066289f0bdbc7b73a59861f59001",
    "state-digest": "0200c5fe5c914b96eb0388774af820df",
    "squared-norm": "195494fad37432907574f04e9951b4ce",
    "fp32-encode": "27b0cc9b6e2c7ab00d2c5d871f3b9c20",
    "fp32-decode": "27b0cc9b6e2c7ab00d2c5d871f3b9c20",
    "fp32-accumulate": "934e8a7281cb7e3a07382167c06b174c",
    "fp32-reduce": "de7aa6183051cfbd187468a1e08b9109",
    "fp16-encode": "edea00eaa1348bdf7240b4a85a03e768",
    "fp16-decode": "92c395e387cfceb594174106c19896e3",
    "fp16-accumulate": "d256d3869804a1e301c3c9fb6a9b3514",
    "fp16-reduce": "62741f76afc4e7c4f671a840a74efd84",
    "int8-encode": "783bc8c5856ea8b2b6b7bb4af0ea03ff",
    "int8-decode": "5386c518520d7a1c9d8879728be72945",
    "int8-accumulate": "da79356484fc98c665e63aa6e1a18d84",
    "int8-reduce": "a9e9e3cf1ff217abf1e999a9b6c8e221",
    "clipped-mean": "ea04f845c9be1f2467f88d0ee59fe3c1",
    "clipped-trimmed_mean": "aa12e8e3b65948195ecd36b0e404ebf3",
    "clipped-median": "e767c59929e128dfd1e4b3b38615051b",
}
"""BLAKE3 of each computation's bytes, the first 16 bytes in hexadecimal."""


def pattern(seed: int, n: int = _SIZE) -> _Floats:
    """Values of many magnitudes (2**-21 … 2**2), signs and full mantissas; equal on every machine.

    Args:
        seed: Which of the vectors.
        n: How many values.
    """
    state = (np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(
        seed * 0xD1342543DE82EF95 % 2**64
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    state ^= state >> np.uint64(31)
    mantissa_and_sign = (state & np.uint64(0x807FFFFF)).astype(np.uint32)
    exponent = (np.uint64(106) + (state >> np.uint64(32)) % np.uint64(24)).astype(np.uint32)
    return (mantissa_and_sign | (exponent << np.uint32(23))).view(np.float32)


def edge_cases() -> _Floats:
    """A vector of the same length with blocks of zeros, of ties, of denormals and of the largest values."""
    values = pattern(0)
    values[:256] = 0.0
    values[256:510] = np.arange(-127, 127, dtype=np.float32) + np.float32(0.5)
    values[510:512] = 127.0, -127.0  # so that the scale is 1 and every other value of the block a tie
    values[512:768] = np.full(256, 2.0**-130, np.float32)
    values[600] = -0.0
    values[768:800] = 65504.0
    return values


def computations() -> dict[str, Callable[[], bytes]]:
    """What is compared, by name; each gives bytes."""
    checks: dict[str, Callable[[], bytes]] = {"outer-step": _outer_step, "state-digest": _state_digest}
    checks["squared-norm"] = lambda: np.float64(squared_norm(pattern(6))).tobytes()
    for name in CODECS:
        checks[f"{name}-encode"] = lambda name=name: _encode(name)  # type: ignore[misc]
        checks[f"{name}-decode"] = lambda name=name: _decode(name)  # type: ignore[misc]
        checks[f"{name}-accumulate"] = lambda name=name: _accumulate(name)  # type: ignore[misc]
        checks[f"{name}-reduce"] = lambda name=name: _reduce(name)  # type: ignore[misc]
    for how in get_args(Aggregation):
        checks[f"clipped-{how}"] = lambda how=how: _clipped(how)  # type: ignore[misc]
    return checks


def check_golden() -> None:
    """Compute all of it and compare; some milliseconds once the kernels are compiled.

    Raises:
        NodeError: ``TRN_GOLDEN``: something differs; names what, the processor and the library versions.
    """
    wrong = [name for name, compute in computations().items() if _fingerprint(compute()) != GOLDEN.get(name)]
    if wrong:
        raise NodeError(
            Code.TRN_GOLDEN,
            f"This machine computes other bits for {', '.join(wrong)}: "
            f"{_processor()} ({platform.machine()}), Python {platform.python_version()}, "
            f"numpy {np.__version__}, numba {numba.__version__}.",
        )


def _outer_step() -> bytes:
    params, momentum = pattern(1), pattern(2)
    for step in range(4):
        outer_step(params, momentum, pattern(3 + step), 0.7, 0.9, params, momentum)
    return params.tobytes() + momentum.tobytes()


def _state_digest() -> bytes:
    return state_digest(3, pattern(1), pattern(2), Grid(_SIZE, 256), schedule=b"golden")


def _encode(name: str) -> bytes:
    return CODECS[name].encode(pattern(0)) + CODECS[name].encode(edge_cases())


def _decode(name: str) -> bytes:
    one = CODECS[name]
    return (
        one.decode(one.encode(pattern(0)), _SIZE).tobytes()
        + one.decode(one.encode(edge_cases()), _SIZE).tobytes()
    )


def _accumulate(name: str) -> bytes:
    one = CODECS[name]
    total = pattern(7)
    for peer in range(_PEERS):
        one.accumulate(total, one.encode(pattern(peer)), 1.0 / (peer + 3))
    return total.tobytes()


def _reduce(name: str) -> bytes:
    one = CODECS[name]
    return reduce_chunk(one, [one.encode(pattern(peer)) for peer in range(_PEERS)], _WEIGHTS, _SIZE)


def _clipped(how: Aggregation) -> bytes:
    int8 = CODECS["int8"]
    data = [int8.encode(pattern(peer)) for peer in range(len(_CLIPS))]
    weights = [1000 + 731 * peer for peer in range(len(_CLIPS))]
    return reduce_chunk(int8, data, weights, _SIZE, clips=_CLIPS, how=how)


def _fingerprint(data: bytes) -> str:
    return blake3(data).hexdigest(length=16)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "an unknown processor"


def main(arguments: list[str]) -> int:
    """The command line of this module."""
    if arguments == ["--print"]:
        for name, compute in computations().items():
            print(f'    "{name}": "{_fingerprint(compute())}",')
        return 0
    try:
        check_golden()
    except NodeError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"All {len(GOLDEN)} golden vectors agree.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
