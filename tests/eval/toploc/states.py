"""Running the model: texts generated with a cache, and the last hidden states of texts however computed.

Hidden states are those of the decode steps: the positions after the prompt, each of which was fed one generated token.
"""

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache, LlamaForCausalLM

STEPS = 128  # decode steps, four proofs of 32
TOKENS = STEPS + 1  # the first token comes out of the prefill
TEMPERATURE = 0.8
_END = (0, 2)  # end of text, end of message: never sampled, so that every text has its length

Array = npt.NDArray[np.generic]


def stored(states: torch.Tensor) -> Array:
    """bfloat16 as uint16 bits, float32 as it is."""
    if states.dtype is torch.bfloat16:
        return states.contiguous().view(torch.int16).numpy().view(np.uint16)
    return states.numpy()


def restored(array: Array) -> torch.Tensor:
    """What ``stored`` was given."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@torch.inference_mode()
def generate(model: LlamaForCausalLM, prompts: list[list[int]], seed: int) -> tuple[Array, Array]:
    """One batch, sampled with a cache: tokens int64[n, TOKENS] and states[n, STEPS, H]."""
    generator = torch.Generator().manual_seed(seed)
    cache = DynamicCache(config=model.config)
    output = model.model(input_ids=torch.tensor(prompts), past_key_values=cache, use_cache=True)
    hidden = output.last_hidden_state[:, -1]
    tokens, states = [], []
    for step in range(TOKENS):
        logits = model.lm_head(hidden).float()
        logits[:, list(_END)] = -torch.inf
        chosen = torch.multinomial((logits / TEMPERATURE).softmax(-1), 1, generator=generator)
        tokens.append(chosen)
        if step < STEPS:
            output = model.model(input_ids=chosen, past_key_values=cache, use_cache=True)
            hidden = output.last_hidden_state[:, -1]
            states.append(hidden)
    return torch.cat(tokens, 1).numpy(), stored(torch.stack(states, 1))


@torch.inference_mode()
def decode(model: LlamaForCausalLM, prompts: list[list[int]], tokens: Array) -> Array:
    """States of given texts, computed step by step with a cache, as one batch."""
    cache = DynamicCache(config=model.config)
    given = torch.from_numpy(tokens)
    model.model(input_ids=torch.tensor(prompts), past_key_values=cache, use_cache=True)
    states = [
        model.model(
            input_ids=given[:, step : step + 1], past_key_values=cache, use_cache=True
        ).last_hidden_state[:, -1]
        for step in range(STEPS)
    ]
    return stored(torch.stack(states, 1))


@torch.inference_mode()
def prefill(model: LlamaForCausalLM, prompts: list[list[int]], tokens: Array, batch: int) -> Array:
    """States of given texts, whole sequences at once, ``batch`` of them together."""
    whole = torch.cat([torch.tensor(prompts), torch.from_numpy(tokens)[:, :STEPS]], dim=1)
    parts = [
        model.model(input_ids=whole[start : start + batch], use_cache=False).last_hidden_state[:, -STEPS:]
        for start in range(0, len(whole), batch)
    ]
    return stored(torch.cat(parts))
