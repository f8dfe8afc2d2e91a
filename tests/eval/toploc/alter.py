"""What a dishonest (or merely outdated) worker runs instead: altered weights."""

from collections.abc import Callable, Iterable

import torch
from transformers import LlamaConfig

from tests.eval.toploc.model import Weights, assemble


def is_matrix(name: str) -> bool:
    """The weights of the linear layers: all that a quantizer touches. Embedding and norms stay."""
    return name.endswith("_proj.weight")


def _each(weights: Weights, change: Callable[[torch.Tensor], torch.Tensor]) -> Weights:
    return {name: change(value) if is_matrix(name) else value for name, value in weights.items()}


def noisy(weights: Weights, share: float) -> Weights:
    """Gaussian noise of ``share`` times each matrix's root mean square."""
    generator = torch.Generator().manual_seed(7)

    def change(value: torch.Tensor) -> torch.Tensor:
        return value + torch.randn(value.shape, generator=generator) * (share * value.square().mean().sqrt())

    return _each(weights, change)


def rounded(weights: Weights, bits: int, group: int | None = None) -> Weights:
    """Symmetric integers of ``bits`` bits, one scale per output row or per ``group`` inputs of it."""
    top = 2 ** (bits - 1) - 1

    def change(value: torch.Tensor) -> torch.Tensor:
        cells = value.reshape(value.shape[0], -1, group or value.shape[1])
        scale = cells.abs().amax(dim=2, keepdim=True).clamp_min(1e-12) / top
        return ((cells / scale).round().clamp(-top, top) * scale).reshape(value.shape)

    return _each(weights, change)


def float8(weights: Weights) -> Weights:
    """8-bit floats (e4m3), one scale per output row."""

    def change(value: torch.Tensor) -> torch.Tensor:
        scale = value.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 448
        return (value / scale).to(torch.float8_e4m3fn).float() * scale

    return _each(weights, change)


def without_layer(weights: Weights, gone: int) -> Weights:
    """One transformer layer less; those above move down."""
    kept: Weights = {}
    for name, value in weights.items():
        parts = name.split(".")
        if ".layers." in name:
            layer = int(parts[2])
            if layer == gone:
                continue
            parts[2] = str(layer - (layer > gone))
        kept[".".join(parts)] = value
    return kept


def tuned(
    config: LlamaConfig, weights: Weights, batches: Iterable[torch.Tensor], rate: float
) -> Iterable[Weights]:
    """Weights after 1, 2, … steps of AdamW on ``batches`` of token ids, in float32."""
    model = assemble(config, {name: value.clone() for name, value in weights.items()}, torch.float32, "sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for ids in batches:
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        named = dict(model.named_parameters())
        yield {name: named[name].detach().clone() for name in weights}


def distance(weights: Weights, altered: Weights) -> float:
    """Root mean square change of the matrices, as a share of their own."""
    names = [name for name in weights if is_matrix(name) and name in altered]
    changed = sum(float((weights[name] - altered[name]).square().sum()) for name in names)
    return float((changed / sum(float(weights[name].square().sum()) for name in names)) ** 0.5)
