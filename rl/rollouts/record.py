"""A rollout, a group of them, and where they come from.

A *position* of the run is one task; its group is ``group_size`` rollouts of it. A rollout is one transcript of
tokens: the prompt, then what was sampled, with the environment's own tokens between turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from protocol.units import Digest, PeerId, RunId
from rl.sampling.settings import Sampling

SCHEMA = 1
"""Of rollout files. A reader refuses every other."""

CHUNK = 32
"""Positions of the transcript that one proof covers."""

Finish = Literal["eos", "stop", "length", "over"]
"""How a transcript ends.

``eos``, ``stop``, ``length``: its last token was sampled and is an end-of-sequence token, completes a stop string, or
is the last that ``max_tokens`` allows. ``over``: the environment spoke last.
"""
FINISHES: tuple[Finish, ...] = ("eos", "stop", "length", "over")

Int32s = npt.NDArray[np.int32]
Float32s = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Rollout:
    """One transcript of T tokens.

    Attributes:
        position: Whose task it is.
        index: Its place in the group, from 0.
        tokens: [T] the whole transcript.
        sampled: [T] which of them were sampled from the model; the rest is the prompt and what the environment said.
        logprobs: [T] log-probability of each sampled token under the distribution it was drawn from; 0 elsewhere.
        versions: [T] the policy version that each sampled token was drawn from; -1 elsewhere.
        proofs: TOPLOC proofs of the last hidden states at positions [prompt - 1 ... end - 2], in chunks of ``CHUNK``.
        proof_versions: The policy version that computed each chunk.
        reward: What the environment gave.
        finish: How it ends.
    """

    position: int
    index: int
    tokens: Int32s
    sampled: Bools
    logprobs: Float32s
    versions: Int32s
    proofs: tuple[bytes, ...]
    proof_versions: tuple[int, ...]
    reward: float
    finish: Finish

    @property
    def prompt(self) -> int:
        """Tokens before the first sampled one; T when nothing was sampled."""
        return int(self.sampled.argmax()) if self.sampled.any() else len(self.tokens)

    @property
    def end(self) -> int:
        """Tokens up to the last sampled one; what follows is the environment's last word, which no model has read."""
        return len(self.tokens) - int(self.sampled[::-1].argmax()) if self.sampled.any() else len(self.tokens)

    @property
    def chunks(self) -> int:
        """How many proofs it has: one for each begun ``CHUNK`` of the tokens from ``prompt`` to ``end``."""
        return -(-(self.end - self.prompt) // CHUNK)


@dataclass(frozen=True)
class Group:
    """All rollouts of one position.

    Attributes:
        position: The task's place in the run.
        version: The policy version that the work was leased for.
        rollouts: By index, from 0.
    """

    position: int
    version: int
    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True)
class Provenance:
    """What a rollout file says of itself. It is signed by the worker together with the content.

    Attributes:
        schema: Of the file.
        run: The run.
        worker: Who made the rollouts, and signs.
        trainer: Who leased the work.
        counter: The number of that lease, from 0 for each trainer and worker; a file answers one lease.
        version: The policy version that the work was leased for.
        weights: Digest of that version's weights.
        beacon: The beacon of that version, from which seeds are derived.
        environment: Name of the environment.
        environment_version: Its version.
        tokenizer: Digest of the tokenizer.
        sampling: How tokens were drawn.
    """

    schema: int
    run: RunId
    worker: PeerId
    trainer: PeerId
    counter: int
    version: int
    weights: Digest
    beacon: Digest
    environment: str
    environment_version: str
    tokenizer: Digest
    sampling: Sampling


def sampled_tokens(groups: Sequence[Group]) -> int:
    """Sampled tokens of some groups, all together."""
    return sum(int(rollout.sampled.sum()) for group in groups for rollout in group.rollouts)
