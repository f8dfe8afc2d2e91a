"""The forward pass: rows of one step of many sequences, and whole stretches of some.

A step's rows are, in this order: one token for each of the first n slots of the cache (*decoding*), then stretches of
consecutive tokens of single slots (*reading*). All share the products with the weights; attention looks at each
sequence by itself. What comes out for a row depends on its own sequence alone, to the last bit, with oneDNN's packed
products: rows of a product do not influence each other, and attention sums in tiles of fixed size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from rl.engine.cache import TILE, Cache
from rl.engine.weights import LEAST_ROWS, Layer, Weights

_WHOLE = 2**20
"""Scores of one head that are held at once."""


@dataclass(frozen=True, eq=False)
class Stretch:
    """Tokens of one slot that are read at once.

    Attributes:
        slot: Where their keys and values go.
        begin: Position of the first.
        tokens: int64[n] ids.
    """

    slot: int
    begin: int
    tokens: torch.Tensor

    @property
    def end(self) -> int:
        """Position behind the last."""
        return self.begin + len(self.tokens)


def step(
    weights: Weights,
    cache: Cache,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    stretches: Sequence[Stretch] = (),
) -> torch.Tensor:
    """Run one step.

    Args:
        weights: The model.
        cache: Holds what came before the rows' positions, and takes the rows' keys and values.
        tokens: int64[n]: the newest token of each of the first n slots; n may be 0.
        positions: int64[n]: where it stands.
        stretches: What else is read, each slot at most once; not one of the first n.

    Returns:
        The states after the final norm [n + all stretches' tokens, H], in the weights' type.
    """
    with torch.inference_mode():
        return _step(weights, cache, tokens, positions, stretches)


def _step(
    weights: Weights,
    cache: Cache,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    stretches: Sequence[Stretch],
) -> torch.Tensor:
    count = len(tokens)
    total = count + sum(len(each.tokens) for each in stretches)
    spare = max(0, LEAST_ROWS - total)
    rows = torch.cat([tokens, *(each.tokens for each in stretches), tokens.new_zeros(spare)])
    places = torch.cat(
        [
            positions,
            *(torch.arange(each.begin, each.end, device=tokens.device) for each in stretches),
            positions.new_zeros(spare),
        ]
    )
    longest = int(positions.max()) + 1 if count else 0
    cache.reserve(max([longest, *(each.end for each in stretches)]))
    turns = weights.turns[:, places].unsqueeze(2)
    view = _View(cache, positions, longest, stretches, weights.kind)
    states = weights.embedding[rows]
    for number, layer in enumerate(weights.layers):
        states = _layer(weights, layer, number, states, turns, view)
    return _normed(states, weights.norm, weights.shape.epsilon)[:total]


def logits(weights: Weights, states: torch.Tensor) -> torch.Tensor:
    """Logits float32[n, V] of states [n, H] after the final norm."""
    with torch.inference_mode():
        count = len(states)
        if count < LEAST_ROWS:
            states = pad(states, (0, 0, 0, LEAST_ROWS - count))
        return weights.head(states)[:count].float()


class _View:
    """What attention reads and writes in one step: the same for every layer."""

    def __init__(
        self,
        cache: Cache,
        positions: torch.Tensor,
        longest: int,
        stretches: Sequence[Stretch],
        kind: torch.dtype,
    ) -> None:
        self.cache = cache
        self.positions = positions
        self.count = len(positions)
        device = positions.device
        self.slots = torch.arange(self.count, device=device)
        self.stretches = stretches
        self.longest = -(-longest // TILE) * TILE
        if self.count:
            seen = torch.arange(self.longest, device=device) <= positions[:, None]
            self.mask = torch.zeros(seen.shape, dtype=kind, device=device).masked_fill(~seen, -torch.inf)[
                :, None, None
            ]
        self.masks = [
            torch.arange(-(-each.end // TILE) * TILE, device=device)
            <= torch.arange(each.begin, each.end, device=device)[:, None]
            for each in stretches
        ]


def _layer(
    weights: Weights, layer: Layer, number: int, states: torch.Tensor, turns: torch.Tensor, view: _View
) -> torch.Tensor:
    shape = weights.shape
    mixed = layer.qkv(_normed(states, layer.before, shape.epsilon))
    heads = mixed.view(len(states), shape.heads + 2 * shape.kv_heads, shape.head)
    turned = _turned(heads[:, : shape.heads + shape.kv_heads], turns)
    queries, keys = turned[:, : shape.heads], turned[:, shape.heads :]
    values = heads[:, shape.heads + shape.kv_heads :]
    seen = _attended(view, number, queries, keys, values)
    states = layer.out.plus(seen, states)
    normed = _normed(states, layer.after, shape.epsilon)
    return layer.down.plus(layer.up.times(normed, layer.gate.gated(normed)), states)


def _attended(
    view: _View, number: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    stored_keys, stored_values = view.cache.states[number]
    rows, heads, head = queries.shape
    kv_heads = keys.shape[1]
    out = torch.empty_like(queries)
    count = view.count
    if count:
        stored_keys[view.slots, :, view.positions] = keys[:count]
        stored_values[view.slots, :, view.positions] = values[:count]
        # The query heads that share a key head stand as rows of one product.
        grouped = queries[:count].reshape(count, kv_heads, heads // kv_heads, head)
        found = scaled_dot_product_attention(
            grouped,
            stored_keys[:count, :, : view.longest],
            stored_values[:count, :, : view.longest],
            attn_mask=view.mask,
        )
        out[:count] = found.reshape(count, heads, head)
    begin = count
    for stretch, mask in zip(view.stretches, view.masks, strict=True):
        end = begin + len(stretch.tokens)
        slot_keys, slot_values = stored_keys[stretch.slot], stored_values[stretch.slot]
        slot_keys[:, stretch.begin : stretch.end] = keys[begin:end].transpose(0, 1)
        slot_values[:, stretch.begin : stretch.end] = values[begin:end].transpose(0, 1)
        wide = mask.shape[1]
        found = _read(
            queries[begin:end].transpose(0, 1),
            _shared(slot_keys[:, :wide], heads),
            _shared(slot_values[:, :wide], heads),
            mask,
        )
        out[begin:end] = found.transpose(0, 1)
        begin = end
    if begin < rows:
        out[begin:] = 0
    return out.view(rows, heads * head)


def _read(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Attention of a stretch: queries [heads, n, head], keys and values [heads, m, head], mask bool[n, m]."""
    if queries.dtype is torch.bfloat16 and queries.device.type == "cpu" and mask.numel() <= _WHOLE:
        # Two products of oneDNN and a softmax between them are twice as fast here as the fused way.
        scores = (queries @ keys.transpose(1, 2)).float().mul_(queries.shape[-1] ** -0.5)
        return torch.softmax(scores.masked_fill_(~mask, -torch.inf), -1).to(queries.dtype) @ values
    return scaled_dot_product_attention(queries[None], keys[None], values[None], attn_mask=mask)[0]


def _shared(states: torch.Tensor, heads: int) -> torch.Tensor:
    """[kv_heads, n, head] to [heads, n, head]: each key head for all query heads that share it."""
    return states.repeat_interleave(heads // len(states), 0)


def _turned(heads: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Rotary positions: the halves of each head turned by its position's angles; [n, heads, head]."""
    first, second = heads.float().chunk(2, -1)
    cosine, sine = turns[0], turns[1]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(heads.dtype)


def _normed(states: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMSNorm (Zhang and Sennrich 2019), in float32."""
    wide = states.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return weight * (wide * scale).to(states.dtype)
