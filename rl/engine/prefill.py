"""Whole transcripts read at once: for validators, and for log-probabilities under given weights."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from diloco.config import ModelSection
from protocol.errors import Code, NodeError
from protocol.units import Digest
from rl.engine.cache import Cache
from rl.engine.forward import Stretch, logits, step
from rl.engine.shape import Shape
from rl.engine.weights import Kind, Weights, from_file
from rl.sampling import Sampling, processed

PACK = 2048
"""Tokens that are read in one step; memory is in proportion to it."""

ROWS = 64
"""Rows of logits at once."""


def forward(
    weights: Weights, sequences: Sequence[Sequence[int] | npt.NDArray[np.int32]]
) -> list[torch.Tensor]:
    """Last hidden states, after the final norm, of whole sequences.

    Args:
        weights: The model.
        sequences: Token ids, each 1 to the model's context many.

    Returns:
        For each sequence [T, H], in the weights' type. `logits` makes rows of it into logits.

    Raises:
        NodeError: ``RL_REQUEST``: a sequence is empty or too long, or a token is not of the vocabulary.
    """
    shape = weights.shape
    tokens = [_checked(each, shape.context, shape.vocab) for each in sequences]
    found: list[list[torch.Tensor]] = [[] for _ in tokens]
    order = sorted(range(len(tokens)), key=lambda number: -len(tokens[number]))
    none = torch.empty(0, dtype=torch.int64, device=weights.embedding.device)
    for pack in _packs([len(tokens[number]) for number in order]):
        members = [order[place] for place in pack]
        cache = Cache(shape, len(members), weights.kind, none.device)
        longest = len(tokens[members[0]])
        for begin in range(0, longest, PACK):  # more than one round only where a sequence is a pack by itself
            stretches = [
                Stretch(slot, begin, tokens[number][begin : begin + PACK].to(none.device))
                for slot, number in enumerate(members)
            ]
            states = step(weights, cache, none, none, stretches)
            parts = states.split([len(each.tokens) for each in stretches])
            for number, part in zip(members, parts, strict=True):
                found[number].append(part)
    return [parts[0] if len(parts) == 1 else torch.cat(parts) for parts in found]


def logprobs(
    weights: Weights, states: torch.Tensor, tokens: Sequence[int], sampling: Sampling
) -> npt.NDArray[np.float32]:
    """Log-probabilities of tokens under the distribution that is sampled.

    Args:
        weights: The model.
        states: [n, H]: the state that predicts each token.
        tokens: n ids.
        sampling: The distribution.

    Returns:
        float32[n], −inf where the distribution is cut.

    Raises:
        ValueError: Not as many tokens as states, or logits that are not finite.
    """
    if len(tokens) != len(states):
        raise ValueError(f"{len(states)} states for {len(tokens)} tokens")
    out = np.empty(len(tokens), np.float32)
    for begin in range(0, len(tokens), ROWS):
        rows = logits(weights, states[begin : begin + ROWS]).numpy(force=True)
        for place, row in enumerate(rows, begin):
            out[place] = processed(row, sampling)[tokens[place]]
    return out


def _packs(lengths: Sequence[int]) -> list[list[int]]:
    """Places of sequences that are read together; the longest come first, and those of a pack are alike."""
    packs: list[list[int]] = []
    room = 0
    for place, length in enumerate(lengths):
        if length > room:
            packs.append([])
            room = PACK
        packs[-1].append(place)
        room -= length
    return packs


def _checked(sequence: Sequence[int] | npt.NDArray[np.int32], context: int, vocab: int) -> torch.Tensor:
    if not 0 < len(sequence) <= context:
        raise NodeError(
            Code.RL_REQUEST, f"A sequence has {len(sequence)} tokens; the context holds {context}."
        )
    tokens = torch.as_tensor(np.asarray(sequence, np.int64))
    if int(tokens.min()) < 0 or int(tokens.max()) >= vocab:
        raise NodeError(Code.RL_REQUEST, f"A token is not of the vocabulary of {vocab}.")
    return tokens


class ReadPolicy:
    """One policy version, ready to read: what a validator asks of it."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def states(self, sequences: Sequence[npt.NDArray[np.int32]]) -> list[torch.Tensor]:
        """As `forward`."""
        return forward(self.weights, sequences)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """float32 logits [N, V] of states [N, H]."""
        return logits(self.weights, states)


def load_policy(model: ModelSection, path: Path, digest: Digest | None, kind: Kind = "float32") -> ReadPolicy:
    """A version from its file.

    Raises:
        NodeError: ``RL_WEIGHTS``, as `from_file`.
    """
    return ReadPolicy(from_file(path, Shape.of(model), kind, digest))
