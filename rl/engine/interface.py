"""What an engine is to those who use one, whatever runs beneath: this package's torch backend, or another.

An engine samples by the law of `rl.sampling` and proves by the convention of rollouts: TOPLOC proofs over the last
hidden states (after the final norm) of positions prompt−1 … T−2 of the transcript, in chunks of 32 positions.
A request runs on one *policy version* at a time. After an update it goes on with the old weights up to the next border
of a chunk, is read again with the new ones, and goes on; at most twice, then it stays with its version. So each chunk,
and each token, belongs to one version.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from protocol.units import Digest
from rl.sampling import Finish, Sampling

CHUNK = 32
"""Positions of the transcript that one proof covers."""

MOST_REFILLS = 2
"""How often one rollout changes to newer weights."""


@dataclass(frozen=True)
class Former:
    """What the caller knows of the turns before, for an engine that no longer holds the conversation.

    Attributes:
        id: The request that sampled the turn before.
        length: Tokens of the transcript after it.
        proofs: The proofs that came with it.
        proof_versions: The policy version of each chunk; without proofs, too.
        refills: How often the rollout changed its version so far.
    """

    id: str
    length: int
    proofs: tuple[bytes, ...] = ()
    proof_versions: tuple[int, ...] = ()
    refills: int = 0


@dataclass(frozen=True)
class Request:
    """One turn to be sampled.

    Attributes:
        id: Unique among running and held requests.
        tokens: The whole transcript so far: the prompt, or all turns with the environment's newest answer.
        seed: 32 bytes of Gumbel noise's key.
        sampling: The distribution, and when the turn ends.
        first: Index of the first token to sample among the rollout's sampled tokens.
        prompt: Length of the first prompt, from which chunks are counted; 0 stands for all of ``tokens``.
        proofs: Whether hidden states are proved.
        former: The turn before, where this one continues a conversation: its cache is used if it is still held.
        keep: Whether to hold the conversation for a next turn.
    """

    id: str
    tokens: tuple[int, ...]
    seed: bytes
    sampling: Sampling = field(default_factory=Sampling)
    first: int = 0
    prompt: int = 0
    proofs: bool = False
    former: Former | None = None
    keep: bool = False


@dataclass(frozen=True)
class Piece:
    """What came of a request since the last piece.

    Attributes:
        tokens: Sampled token ids.
        logprobs: Their log-probabilities under the sampled distribution, float32 values.
        versions: The policy version that each was sampled with.
        finish: Why the turn ended, in the last piece only.
        proofs: In the last piece: the proofs of the rollout so far, the last of a short chunk if one is open.
        proof_versions: In the last piece: the policy version of each chunk; also where nothing is proved.
        refills: In the last piece: how often the rollout changed its version so far.
        reused: In the last piece: tokens of the transcript whose keys and values were there and not computed.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    finish: Finish | None = None
    proofs: tuple[bytes, ...] = ()
    proof_versions: tuple[int, ...] = ()
    refills: int = 0
    reused: int = 0


class Engine(Protocol):
    """Continues sequences. All methods belong to one event loop."""

    def generate(self, request: Request) -> AsyncIterator[Piece]:
        """Sample one turn. Closing the iterator cancels the request and frees what it held.

        Raises:
            NodeError: ``RL_REQUEST``: it cannot be served (too long, unknown tokens, an id twice). ``RL_BUSY``: as
                many as may wait are waiting. ``RL_GONE``: the conversation's open chunk belongs to a version that the
                engine no longer has.
        """
        ...

    async def update(self, version: int, weights: Path, digest: Digest) -> float:
        """Take newer weights; returns when new requests run on them. Running ones follow at their next border.

        Args:
            version: Above the present one.
            weights: A safetensors file with the model's tensors.
            digest: The file digest.

        Returns:
            Processor seconds that it took.

        Raises:
            NodeError: ``RL_WEIGHTS``: the file is not what was promised, or does not fit the model.
        """
        ...

    async def release(self, id: str) -> None:
        """Forget a held conversation; nothing happens if it is not held."""
        ...
