"""How tokens are drawn, as the run says it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampling:
    """The settings of one run's sampling; each worker uses them as they are.

    Attributes:
        temperature: Logits are divided by it; above 0.
        top_p: The most probable tokens that together have at least this share are kept; 1 keeps all.
        top_k: At most so many tokens are kept; 0 keeps all.
        max_tokens: Most sampled tokens of one rollout, over all turns.
        stop: A turn ends when its text contains one of these; they stay in it.
        eos: A turn ends with one of these tokens, which is sampled like every other.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    eos: tuple[int, ...] = ()
