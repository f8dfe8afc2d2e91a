"""What a model of the Llama architecture looks like: sizes, and how its positions turn."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diloco.architecture import llama_shapes
from diloco.config import ModelSection
from protocol.errors import Code, NodeError

_MAX_CONFIG_BYTES = 2**20
_MOST = {
    "hidden_size": 65_536,
    "num_hidden_layers": 512,
    "num_attention_heads": 1024,
    "num_key_value_heads": 1024,
    "intermediate_size": 262_144,
    "vocab_size": 2**24,
    "max_position_embeddings": 2**24,
}


@dataclass(frozen=True)
class Shape:
    """Sizes of a model.

    Attributes:
        hidden: Width of the residual stream.
        layers: Decoder layers.
        heads: Query heads.
        kv_heads: Key and value heads; divides `heads`.
        head: Width of one head; even.
        intermediate: Width of the feed-forward layers.
        vocab: Rows of the embedding.
        context: Most tokens that the model sees at once.
        tie: Whether the output layer uses the embedding's weights.
        theta: Base of the rotary positions (Su et al. 2021).
        epsilon: Of RMSNorm.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    intermediate: int
    vocab: int
    context: int
    tie: bool
    theta: float = 10_000.0
    epsilon: float = 1e-6

    @classmethod
    def of(cls, model: ModelSection) -> "Shape":
        """The shape that a run's `[model]` section describes."""
        return cls(
            hidden=model.hidden,
            layers=model.layers,
            heads=model.heads,
            kv_heads=model.kv_heads,
            head=model.hidden // model.heads,
            intermediate=model.intermediate,
            vocab=model.vocab,
            context=model.context,
            tie=model.tie,
        )

    def config(self) -> dict[str, Any]:
        """What `read_shape` reads, as JSON."""
        return {
            "model_type": "llama",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head,
            "intermediate_size": self.intermediate,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": self.tie,
            "rope_theta": self.theta,
            "rms_norm_eps": self.epsilon,
        }

    def named_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Tensors as files name them; a tied output layer is not among them."""
        return llama_shapes(
            vocab=self.vocab, hidden=self.hidden, layers=self.layers, heads=self.heads, kv_heads=self.kv_heads,
            head=self.head, intermediate=self.intermediate, tie=self.tie,
        )  # fmt: skip


def read_shape(path: Path) -> Shape:
    """Read the `config.json` of a Hugging Face folder.

    Raises:
        NodeError: ``RL_WEIGHTS``: it cannot be read, or describes a model that this engine cannot run.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_CONFIG_BYTES + 1)
        config = json.loads(text) if len(text) <= _MAX_CONFIG_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        raise NodeError(Code.RL_WEIGHTS, f"The model's configuration cannot be read: {error}.") from None
    if not isinstance(config, dict) or config.get("model_type") != "llama":
        raise NodeError(Code.RL_WEIGHTS, f"{path.name} does not describe a model of the Llama architecture.")
    config.setdefault("num_key_value_heads", config.get("num_attention_heads"))
    sizes = {key: _whole(config, key, most) for key, most in _MOST.items()}
    hidden, heads, kv_heads = (
        sizes[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads")
    )
    head = config.get("head_dim") or hidden // heads
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    plain = isinstance(rope, dict) and rope.get("rope_type", rope.get("type", "default")) == "default"
    theta = rope.get("rope_theta", config.get("rope_theta", 10_000.0)) if plain else 0
    epsilon = config.get("rms_norm_eps", 1e-6)
    if (
        not plain
        or not isinstance(head, int)
        or head < 2
        or head % 2
        or head > hidden
        or heads % kv_heads
        or not isinstance(theta, int | float)
        or not 1 <= theta <= 1e12
        or not isinstance(epsilon, float)
        or not 0 < epsilon < 1
        or config.get("attention_bias")
        or config.get("mlp_bias")
        or config.get("hidden_act", "silu") != "silu"
    ):
        raise NodeError(
            Code.RL_WEIGHTS,
            "The model has a bias, scaled positions, another activation or heads that do not fit: this engine runs "
            "plain models of the Llama architecture.",
        )
    return Shape(
        hidden=hidden,
        layers=sizes["num_hidden_layers"],
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        intermediate=sizes["intermediate_size"],
        vocab=sizes["vocab_size"],
        context=sizes["max_position_embeddings"],
        tie=bool(config.get("tie_word_embeddings", False)),
        theta=float(theta),
        epsilon=epsilon,
    )


def _whole(config: dict[str, Any], key: str, most: int) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise NodeError(Code.RL_WEIGHTS, f"The model's configuration has {key} = {value!r:.40}.")
    return value
