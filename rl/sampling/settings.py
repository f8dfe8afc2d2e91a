"""How tokens are drawn, as the run says it."""

from dataclasses import dataclass

MAX_STOPS = 16
MAX_STOP_BYTES = 256
MAX_ENDS = 64


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn and when drawing ends.

    Attributes:
        temperature: Logits are divided by it; 0 takes the largest.
        top_p: The smallest set of tokens with at least this probability is kept (Holtzman et al. 2020).
        top_k: So many of the largest are kept; 0 keeps all.
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

    def __post_init__(self) -> None:
        """Refuse what is no distribution or no bound.

        Raises:
            ValueError: A value is out of its range.
        """
        if not (self.temperature == 0 or 0.01 <= self.temperature <= 100):
            raise ValueError(f"temperature must be 0 or from 0.01 to 100, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if not 0 <= self.top_k < 2**31:
            raise ValueError(f"top_k must be at least 0, not {self.top_k}")
        if not 0 < self.max_tokens < 2**31:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if len(self.stop) > MAX_STOPS or any(
            not 0 < len(each.encode()) <= MAX_STOP_BYTES for each in self.stop
        ):
            raise ValueError(f"stop holds at most {MAX_STOPS} texts of 1 to {MAX_STOP_BYTES} bytes")
        if len(self.eos) > MAX_ENDS or any(token < 0 for token in self.eos):
            raise ValueError(f"eos holds at most {MAX_ENDS} token ids")
