"""When a turn ends. Engine and validator ask the same function after each sampled token."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from rl.sampling.settings import Sampling

Finish: TypeAlias = Literal["eos", "stop", "length"]
Decode: TypeAlias = Callable[[Sequence[int]], str]
"""Token ids to text; a token of a tokenizer stands for at least one byte, or for a mark without text."""

_MARKS = 8


def finish(
    sampling: Sampling, sampled: Sequence[int], decode: Decode | None, before: int = 0, room: int = 2**31
) -> Finish | None:
    """Whether the turn is over after its newest token.

    A stop text counts when it is found in the text of the last n tokens, n being its length in bytes and 8 more. The
    tokens that make it up belong to the turn.

    Args:
        sampling: The rules.
        sampled: The turn's tokens so far, at least one.
        decode: Needed where ``sampling.stop`` is not empty.
        before: How many tokens the rollout's earlier turns sampled.
        room: How many tokens the model's context still holds after these; 0 ends the turn.

    Returns:
        The reason, or None; of several the first of eos, stop, length.

    Raises:
        ValueError: There are stop texts and no way to see text.
    """
    if sampled[-1] in sampling.eos:
        return "eos"
    if sampling.stop:
        if decode is None:
            raise ValueError("stop texts need a tokenizer")
        for stop in sampling.stop:
            if stop in decode(sampled[-(len(stop.encode()) + _MARKS) :]):
                return "stop"
    return "length" if before + len(sampled) >= sampling.max_tokens or room <= 0 else None
