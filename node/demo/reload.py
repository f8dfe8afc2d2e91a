"""Checks an exported model as a stranger would use it: ``python -m node.demo.reload RUN.toml FOLDER`` prints JSON.

A process of its own, because it loads torch. The reloaded model's logits are compared with those of the run's own
model class with the same values, and the values' digest is given, to be compared with what the members agreed on.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROMPTS = ("def ", "The ")
SAMPLE_TOKENS = 48
_ROW_PROMPT = "import os\n\ndef main():\n    return "


def inspect(run_file: Path, folder: Path) -> dict[str, Any]:
    """Load the model and its tokenizer, compare, generate.

    Args:
        run_file: The run's.
        folder: Hugging Face folder.

    Returns:
        `parameters`, `parameters_digest`, `logit_difference` (largest, of the last row), and `samples`.
    """
    import numpy as np
    import torch
    from safetensors.numpy import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from diloco.architecture import layout_of
    from diloco.digest import parameters_digest
    from diloco.model import model_with
    from node.runfile import load

    section = load(run_file).model
    layout = layout_of(section)
    tensors = load_file(folder / "model.safetensors")
    flat = np.concatenate(
        [tensors[slot.name].astype(np.float32, copy=False).ravel() for slot in layout.parameters]
    )

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    ).eval()
    ids = torch.tensor([tokenizer.encode(_ROW_PROMPT)])
    with torch.no_grad():
        theirs = model(input_ids=ids).logits[0, -1].float()
        ours = model_with(section, flat)(input_ids=ids).logits[0, -1].float()
    if not bool(torch.isfinite(theirs).all()):
        raise ValueError("the reloaded model computes NaN or infinity")
    return {
        "parameters": layout.size,
        "parameters_digest": parameters_digest(flat).hex(),
        "logit_difference": float((theirs - ours).abs().max()),
        "samples": [_sample(model, tokenizer, prompt, number) for number, prompt in enumerate(PROMPTS)],
    }


def _sample(model: Any, tokenizer: Any, prompt: str, seed: int) -> str:
    import torch

    torch.manual_seed(seed)
    ids = torch.tensor([tokenizer.encode(prompt)])
    drawn = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        temperature=0.8,
        max_new_tokens=SAMPLE_TOKENS,
        pad_token_id=0,
    )
    return str(tokenizer.decode(drawn[0], skip_special_tokens=True))


def main(argv: Sequence[str]) -> int:
    """Print what `inspect` found, or `error` with one sentence."""
    from node.children import die_with_parent_if_asked

    die_with_parent_if_asked()
    try:
        found = inspect(Path(argv[0]), Path(argv[1]))
    except Exception as error:  # whatever it is, the verdict is to name it
        found = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(found), flush=True)
    return 1 if "error" in found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
