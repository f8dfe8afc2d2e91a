"""What a rollout file is held against: the run's terms, and the lease that it answers. Pure data."""

from dataclasses import dataclass

from protocol.units import Digest, PeerId, RunId
from rl.sampling.settings import Sampling


@dataclass(frozen=True)
class Terms:
    """What is the same for all rollouts of a run.

    Attributes:
        run: The run.
        environment: Name of the environment.
        environment_version: Its version.
        tokenizer: Digest of the tokenizer.
        sampling: How tokens are drawn.
        vocab: Tokens are below it.
        context: Most tokens of a transcript.
        group_size: Rollouts of a position.
        turns: Most turns of the model in a rollout.
        window: How many steps a policy version may be older than the newest one.
        proof_bytes: Of one proof.
        refills: How often a rollout may go over to newer weights.
    """

    run: RunId
    environment: str
    environment_version: str
    tokenizer: Digest
    sampling: Sampling
    vocab: int
    context: int
    group_size: int
    turns: int
    window: int
    proof_bytes: int = 258
    refills: int = 2


@dataclass(frozen=True)
class Lease:
    """What one file has to answer.

    Attributes:
        worker: Who was leased the work.
        trainer: By whom.
        counter: The lease's number.
        version: The policy version it was leased for.
        weights: Digest of that version's weights.
        beacon: The version's beacon.
        positions: The positions, ascending.
        newest: The newest version that was published when the file was acknowledged.
    """

    worker: PeerId
    trainer: PeerId
    counter: int
    version: int
    weights: Digest
    beacon: Digest
    positions: tuple[int, ...]
    newest: int
