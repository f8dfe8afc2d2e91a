"""Names, shapes and initial values of a model's parameters, without torch.

The daemon, which holds the outer state, needs only these. `tests/diloco/test_model.py` holds them equal to what
`transformers` builds. The initial values are the same bits on every machine: they come from Philox's integer stream
through integer sums and one rounded product, with no logarithm or cosine whose last bit a library may choose.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from diloco.config import ModelSection
from diloco.layout import Layout

INITIAL_DEVIATION = 0.05
_PIECE = 2**20


def named_shapes(model: ModelSection) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Parameters in declaration order; a tied output layer is not named again."""
    return llama_shapes(
        vocab=model.vocab, hidden=model.hidden, layers=model.layers, heads=model.heads, kv_heads=model.kv_heads,
        head=model.hidden // model.heads, intermediate=model.intermediate, tie=model.tie,
    )  # fmt: skip


def llama_shapes(
    *,
    vocab: int,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head: int,
    intermediate: int,
    tie: bool,
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Parameters of the Llama architecture, by Hugging Face's names, in declaration order; a head is ``head`` wide."""
    query, key = heads * head, kv_heads * head
    yield "model.embed_tokens.weight", (vocab, hidden)
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.self_attn.q_proj.weight", (query, hidden)
        yield f"{prefix}.self_attn.k_proj.weight", (key, hidden)
        yield f"{prefix}.self_attn.v_proj.weight", (key, hidden)
        yield f"{prefix}.self_attn.o_proj.weight", (hidden, query)
        yield f"{prefix}.mlp.gate_proj.weight", (intermediate, hidden)
        yield f"{prefix}.mlp.up_proj.weight", (intermediate, hidden)
        yield f"{prefix}.mlp.down_proj.weight", (hidden, intermediate)
        yield f"{prefix}.input_layernorm.weight", (hidden,)
        yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not tie:
        yield "lm_head.weight", (vocab, hidden)


def layout_of(model: ModelSection) -> Layout:
    """The canonical flat layout of a model."""
    return Layout.of(tuple(named_shapes(model)))


def initial_parameters(model: ModelSection, seed: int) -> npt.NDArray[np.float32]:
    """The parameters that round 0 starts from.

    Norm weights are 1. Matrices are drawn with a fixed deviation, those that write into the residual stream with
    that over sqrt(2 · layers) (GPT-2, Radford et al. 2019, section 2.3).

    Args:
        model: Shape of the model.
        seed: The run's seed.

    Returns:
        float32[parameters] in layout order.
    """
    layout = layout_of(model)
    values = np.empty(layout.size, np.float32)
    for slot in layout.parameters:
        part = values[slot.offset : slot.offset + slot.size]
        if len(slot.shape) == 1:
            part[:] = 1.0
            continue
        into_residual = slot.name.endswith(("o_proj.weight", "down_proj.weight"))
        deviation = INITIAL_DEVIATION / math.sqrt(2 * model.layers) if into_residual else INITIAL_DEVIATION
        _draw_bell(part, deviation, f"{seed} {slot.name}")
    return values


def _draw_bell(out: npt.NDArray[np.float32], deviation: float, name: str) -> None:
    """Fill with sums of eight uniform 16-bit integers (Irwin–Hall): mean 0, bell-shaped, bounded at 4.9 deviations."""
    key = blake3(name.encode(), derive_key_context="diloco initial parameters 1").digest(16)
    stream = np.random.Philox(key=int.from_bytes(key, "little"))
    scale = deviation / math.sqrt(8 * (2**32 - 1) / 12)
    for start in range(0, len(out), _PIECE):
        part = out[start : start + _PIECE]
        words = stream.random_raw(2 * len(part)).astype("<u8").view("<u2").reshape(len(part), 8)
        part[:] = (words.sum(axis=1, dtype=np.int64) * 2 - 8 * 65_535) * (0.5 * scale)
