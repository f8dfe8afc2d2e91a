"""The outer optimizer: SGD with Nesterov momentum on the pseudo-gradient (DiLoCo, arXiv:2311.08105, §2).

It is an own kernel because all members must compute the same bits: ``torch.optim.SGD`` fuses multiply and add
where the processor can, and so differs between machines, and on one machine between the body and the tail of
a vector.
"""

import numpy as np
import numpy.typing as npt
from numba import types

from diloco.compiled import FLOATS, FLOATS_OUT, kernel

_Floats = npt.NDArray[np.float32]


@kernel(types.void(FLOATS, FLOATS, FLOATS, types.float32, types.float32, FLOATS_OUT, FLOATS_OUT))
def _step(
    params_in: _Floats,
    momentum_in: _Floats,
    gradient: _Floats,
    lr: np.float32,
    mu: np.float32,
    params_out: _Floats,
    momentum_out: _Floats,
) -> None:
    for i in range(params_out.size):
        g = gradient[i]
        v = mu * momentum_in[i] + g
        momentum_out[i] = v
        params_out[i] = params_in[i] - lr * (g + mu * v)


def outer_step(
    params_in: _Floats,
    momentum_in: _Floats,
    gradient: _Floats,
    lr: float,
    mu: float,
    params_out: _Floats,
    momentum_out: _Floats,
) -> None:
    """``v = μ·v + g; p −= lr·(g + μ·v)`` in fp32, every operation rounded separately.

    Elementwise, so it may be called chunk by chunk and from several threads; outputs may be the inputs
    themselves, but may not overlap them otherwise.

    Args:
        params_in: Outer parameters, flat fp32 of shape (n,).
        momentum_in: Outer momentum v, same shape.
        gradient: Averaged pseudo-gradient g (outer minus inner parameters), same shape.
        lr: Outer learning rate; rounded to fp32 once.
        mu: Outer momentum coefficient; rounded to fp32 once.
        params_out: Where the new parameters go, same shape.
        momentum_out: Where the new momentum goes, same shape.

    Raises:
        ValueError: Shapes differ.
        TypeError: Not fp32, flat and contiguous.
    """
    if any(part.shape != params_in.shape for part in (momentum_in, gradient, params_out, momentum_out)):
        raise ValueError("parameters, momentum and gradient must have one shape")
    _step(params_in, momentum_in, gradient, np.float32(lr), np.float32(mu), params_out, momentum_out)
