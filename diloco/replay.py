"""The outer step of a whole round from its reduced bytes: the same for who took part, who catches up, who exports."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from diloco.codec import Codec
from diloco.layout import Grid
from diloco.outer_step import outer_step

_Floats = npt.NDArray[np.float32]


def replay(
    params: _Floats,
    momentum: _Floats,
    chunks: Sequence[bytes],
    *,
    grid: Grid,
    codec: Codec,
    lr: float,
    mu: float,
    params_out: _Floats,
    momentum_out: _Floats,
) -> None:
    """Take the outer step of one round.

    A round to which nobody contributed has no chunks: parameters and momentum keep their bits.

    Args:
        params: Outer parameters before, flat fp32 of shape (grid.size,).
        momentum: Outer momentum before, same shape.
        chunks: The encoded mean pseudo-gradient, one piece per chunk of the grid, verified; or none at all.
        grid: The run's chunk grid.
        codec: The run's codec.
        lr: Outer learning rate.
        mu: Outer momentum coefficient.
        params_out: Where the new parameters go; may be ``params`` itself.
        momentum_out: Where the new momentum goes; may be ``momentum`` itself.

    Raises:
        ValueError: The chunks are not those of the grid, or shapes differ.
        NodeError: A chunk does not decode.
    """
    if not chunks:
        if params_out is not params:
            params_out[:] = params
            momentum_out[:] = momentum
        return
    for part, data in zip(grid.slices(), chunks, strict=True):
        gradient = codec.decode(data, part.stop - part.start)
        outer_step(params[part], momentum[part], gradient, lr, mu, params_out[part], momentum_out[part])
