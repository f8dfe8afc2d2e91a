"""Made-up hidden states that behave like a model's (a few steady outlier channels), and honest rounding."""

import torch

from toploc import Pair, build_proofs

HIDDEN = 576


def states(seed: int, tokens: int = 128, hidden: int = HIDDEN) -> torch.Tensor:
    """Float32 states of one text; outlier channels are the same in every text."""
    world = torch.Generator().manual_seed(0)
    scale = torch.randn(hidden, generator=world).mul(0.5).exp()
    steady = torch.randperm(hidden, generator=world)[:6]
    level = torch.rand(6, generator=world) * 8 + 8
    text = torch.Generator().manual_seed(seed + 1)
    values = torch.randn(tokens, hidden, generator=text) * scale
    values[:, steady] = level * (1 + 0.15 * torch.randn(tokens, 6, generator=text))
    return values


def computed(values: torch.Tensor, seed: int, noise: float = 0.004) -> torch.Tensor:
    """The same states as another batch size, kernel or device would give them."""
    generator = torch.Generator().manual_seed(seed)
    error = torch.randn(values.shape, generator=generator) * (noise * values.square().mean().sqrt() * 3)
    return (values + error).to(torch.bfloat16)


def pair(seed: int, tokens: int = 128, shift: float = 0.0) -> Pair:
    """Proofs of one computation, activations of another; ``shift`` moves the prover's channels for good."""
    values = states(seed, tokens)
    channels = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(99))
    proofs = build_proofs(computed(values * (1 + shift * channels), 2 * seed), 32, 128, skip_prefill=True)
    return Pair(proofs, computed(values, 2 * seed + 1))
