"""The model as torch and `transformers` know it; its parameters always come from the flat layout."""

import numpy as np
import numpy.typing as npt
import torch
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM, LlamaRotaryEmbedding

from diloco.architecture import layout_of
from diloco.config import ModelSection
from diloco.layout import Layout
from protocol.errors import Code, NodeError


def llama_config(model: ModelSection) -> LlamaConfig:
    """The Hugging Face configuration of a model section; the end mark, token 0, ends a text."""
    return LlamaConfig(
        hidden_size=model.hidden,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        intermediate_size=model.intermediate,
        vocab_size=model.vocab,
        max_position_embeddings=model.context,
        tie_word_embeddings=model.tie,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
        use_cache=False,
        attn_implementation="sdpa",
    )


def empty_model(model: ModelSection) -> LlamaForCausalLM:
    """The model on torch's meta device: shapes, no memory.

    Raises:
        NodeError: TRN_MODEL when `transformers` builds other parameters than the layout says.
    """
    with torch.device("meta"):
        module = LlamaForCausalLM(llama_config(model))
    if layout_of_module(module) != layout_of(model):
        raise NodeError(
            Code.TRN_MODEL,
            "The installed transformers builds other parameters for this [model] section than the run's layout has.",
            fix="Install the version of transformers that the constraints file names.",
        )
    return module


def materialize(module: LlamaForCausalLM, device: torch.device) -> None:
    """Give an empty model memory. Buffers are computed, ties restored; parameters are undefined until loaded."""
    module.to_empty(device=device)
    module.model.rotary_emb = LlamaRotaryEmbedding(config=module.config).to(device)
    if module.config.tie_word_embeddings:
        module.lm_head.weight = module.model.embed_tokens.weight


def layout_of_module(module: torch.nn.Module) -> Layout:
    """The canonical layout of a module: declaration order, tied parameters once."""
    return Layout.of(tuple((name, tuple(each.shape)) for name, each in module.named_parameters()))


def model_with(model: ModelSection, params: npt.NDArray[np.float32]) -> LlamaForCausalLM:
    """A whole model in memory, in evaluation mode.

    Args:
        model: Its shape.
        params: float32[parameters] in layout order.
    """
    module = empty_model(model)
    materialize(module, torch.device("cpu"))
    named = dict(module.named_parameters())
    with torch.no_grad():
        for name, values in layout_of(model).views(params):
            named[name].copy_(torch.tensor(values))
    return module.eval()
