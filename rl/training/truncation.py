"""What top-k and top-p left of a distribution, held so that both sides of a ratio are of the same one.

A token was drawn from what its policy's cuts kept, and its log-probability is that of the distribution normalised again
over those. The policy in training is held against it over the very same tokens of the vocabulary: its own cuts would
keep others, and the whole softmax is another distribution.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_CUT = -1e9
"""In place of the logit of a token that was cut: its probability is 0, and neither it nor a gradient is no number."""

Bits = npt.NDArray[np.uint8]
"""[N, ceil(V / 8)]: for each of N sampled tokens, which of the vocabulary were kept, the first in the highest bit."""


def kept(tempered: Tensor, top_k: int, top_p: float) -> Tensor:
    """What `rl.sampling.distribution.nucleus` keeps, for many rows at once.

    Args:
        tempered: float32[N, V], logits divided by the temperature.
        top_k: 0 keeps all.
        top_p: Of the probability that top-k left.

    Returns:
        bool[N, V], at least one in each row.
    """
    ordered, ids = torch.sort(tempered, stable=True, dim=1, descending=True)
    if 0 < top_k < tempered.shape[1]:
        ordered = ordered[:, :top_k]
    weights = (ordered - ordered[:, :1]).exp().double()
    before = weights.cumsum(1) - weights
    keeps = before < top_p * weights.sum(1, keepdim=True) if top_p < 1 else torch.ones_like(before).bool()
    keeps[:, :1] = True
    found = torch.zeros_like(tempered, dtype=torch.bool)
    return found.scatter_(1, ids[:, : ordered.shape[1]], keeps)


def all_kept(count: int, vocab: int) -> Bits:
    """Nothing is cut for any of `count` tokens."""
    return np.full((count, -(-vocab // 8)), 0xFF, np.uint8)


def packed(found: Tensor) -> Bits:
    """bool[N, V] in an eighth of its memory, and on the CPU."""
    return np.packbits(found.cpu().numpy(), axis=1)


def cut(tempered: Tensor, bits: Bits) -> Tensor:
    """The logits with what was not kept out of the way.

    Args:
        tempered: float32[N, V].
        bits: Of the same N tokens.
    """
    found = torch.from_numpy(np.unpackbits(bits, axis=1, count=tempered.shape[1])).to(tempered.device)
    return tempered.masked_fill(found == 0, _CUT)
