"""A model as a Hugging Face folder: safetensors, configuration, tokenizer; nothing in it is ever run or unpickled."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from diloco.architecture import layout_of
from diloco.data.tokenizer import END
from diloco.genesis import Genesis
from protocol.errors import Code, NodeError
from protocol.files import write_whole


def export(folder_out: Path, genesis: Genesis, params: npt.NDArray[np.float32]) -> None:
    """Write what `AutoModelForCausalLM` and `AutoTokenizer` load. Needs torch (about two seconds to import).

    Args:
        folder_out: Made when needed; files of a former export in it are replaced, each at once.
        genesis: The run.
        params: float32[parameters] in layout order.

    Raises:
        NodeError: TRN_MODEL when the parameters are not this model's; STO_UNWRITABLE.
    """
    from diloco.model import llama_config

    model = genesis.sections.model
    layout = layout_of(model)
    if params.shape != (layout.size,) or params.dtype != np.float32:
        raise NodeError(
            Code.TRN_MODEL,
            f"The run's model has {layout.size} float32 values, not {params.dtype}{list(params.shape)}.",
        )
    config = llama_config(model)
    config.architectures = ["LlamaForCausalLM"]
    config.dtype = "float32"
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.context,
        "eos_token": END,
        "bos_token": END,
        "clean_up_tokenization_spaces": False,
    }
    # A tied output layer is not stored: the loader ties it again.
    tensors = {name: np.ascontiguousarray(values) for name, values in layout.views(params)}
    files = {
        "config.json": config.to_json_string(use_diff=True).encode(),
        "generation_config.json": _json({"bos_token_id": 0, "eos_token_id": 0, "_from_model_config": True}),
        "tokenizer.json": genesis.tokenizer.encode(),
        "tokenizer_config.json": _json(tokenizer),
        "model.safetensors": save(tensors, metadata={"format": "pt"}),
    }
    for name, data in files.items():
        write_whole(folder_out / name, [data])
        (folder_out / name).chmod(0o644)


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
