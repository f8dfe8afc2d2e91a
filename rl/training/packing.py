"""Rollouts as packed rows: several sequences in one row, each with positions of its own, none of which sees another.

A sampled token is predicted by the token before it, so the first token of a sequence is never a sampled one. All arrays
of `Rows` are aligned with the token they speak of, not with the one before.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from protocol.errors import Code, NodeError
from rl.rollouts.record import Group
from rl.training.advantages import advantages

Int32s = npt.NDArray[np.int32]
Float32s = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

REPORTED = -1
"""The version of sampled tokens whose reported log-probabilities are believed, and not computed again."""


@dataclass(frozen=True, eq=False)
class Example:
    """One transcript of T tokens to learn from.

    Attributes:
        tokens: [T] the transcript.
        sampled: [T] which tokens were sampled; never the first one.
        advantage: Of each of them.
        logprobs: [T] reported log-probabilities of the sampled ones.
        versions: [T] the policy version of each sampled token, or ``REPORTED``.
    """

    tokens: Int32s
    sampled: Bools
    advantage: float
    logprobs: Float32s
    versions: Int32s


@dataclass(frozen=True, eq=False)
class Rows:
    """Packed sequences, R rows of L tokens.

    Attributes:
        tokens: int32[R, L]; 0 in padding.
        positions: int32[R, L], from 0 in each sequence; in padding, too.
        segments: int32[R, L]: 1, 2, … number the sequences of a row, 0 is padding.
        sampled: bool[R, L].
        advantages: float32[R, L], 0 where nothing was sampled.
        behaviour: float32[R, L], reported log-probabilities, 0 where nothing was sampled.
        versions: int32[R, L], ``REPORTED`` where nothing was sampled.
    """

    tokens: Int32s
    positions: Int32s
    segments: Int32s
    sampled: Bools
    advantages: Float32s
    behaviour: Float32s
    versions: Int32s

    @property
    def count(self) -> int:
        """Sampled tokens."""
        return int(self.sampled.sum())


def examples_of(
    groups: Iterable[Group], kind: Literal["standardised", "centred"] = "standardised"
) -> tuple[Example, ...]:
    """What accepted groups teach, in their order: every rollout of which something was sampled."""
    return tuple(
        Example(
            rollout.tokens, rollout.sampled, float(advantage), rollout.logprobs, rollout.versions
        )
        for group in groups
        for rollout, advantage in zip(
            group.rollouts, advantages([each.reward for each in group.rollouts], kind), strict=True
        )
        if rollout.sampled.any()
    )  # fmt: skip


def pack(examples: Sequence[Example], length: int) -> Rows:
    """Put examples into as few rows as first-fit from the longest down finds; the same rows on every machine.

    Args:
        examples: What to pack; without any there are no rows.
        length: Tokens of a row. Rows are cut to what the fullest one needs.

    Raises:
        NodeError: ``RL_BATCH`` when a transcript is longer than a row, or its first token is said to be sampled.
    """
    for example in examples:
        if len(example.tokens) > length:
            raise NodeError(
                Code.RL_BATCH, f"A transcript of {len(example.tokens)} tokens does not fit a row of {length}."
            )
        if not len(example.tokens) or example.sampled[0]:
            raise NodeError(
                Code.RL_BATCH, "A transcript begins with a sampled token, which nothing predicts."
            )
    bins: list[list[Example]] = []
    room: list[int] = []
    for example in sorted(examples, key=lambda each: -len(each.tokens)):
        size = len(example.tokens)
        fits = next((number for number, left in enumerate(room) if left >= size), None)
        if fits is None:
            bins.append([])
            room.append(length)
            fits = len(bins) - 1
        bins[fits].append(example)
        room[fits] -= size
    width = length - min(room, default=length)
    rows = empty(len(bins), width)
    for row, members in enumerate(bins):
        start = 0
        for segment, example in enumerate(members, 1):
            place = (row, slice(start, start + len(example.tokens)))
            rows.tokens[place] = example.tokens
            rows.positions[place] = np.arange(len(example.tokens))
            rows.segments[place] = segment
            rows.sampled[place] = example.sampled
            rows.advantages[place] = np.where(example.sampled, example.advantage, 0.0)
            rows.behaviour[place] = np.where(example.sampled, example.logprobs, 0.0)
            rows.versions[place] = np.where(example.sampled, example.versions, REPORTED)
            start += len(example.tokens)
    return rows


def empty(count: int, width: int) -> Rows:
    """Rows of nothing but padding."""
    shape = (count, width)
    positions = np.tile(np.arange(width, dtype=np.int32), (count, 1))
    return Rows(
        np.zeros(shape, np.int32), positions, np.zeros(shape, np.int32), np.zeros(shape, np.bool_),
        np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.full(shape, REPORTED, np.int32),
    )  # fmt: skip


def select(rows: Rows, first: int, count: int) -> Rows:
    """Some rows, filled up with padding where there are fewer than ``count``."""
    fill = empty(max(0, first + count - max(len(rows.tokens), first)), rows.tokens.shape[1])
    joined = {
        name: np.concatenate([getattr(rows, name)[first : first + count], getattr(fill, name)])
        for name in Rows.__dataclass_fields__
    }
    return Rows(**joined)
