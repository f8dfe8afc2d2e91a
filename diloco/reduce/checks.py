"""What an owner checks of a contribution, and a voter of a reduced chunk, before a value of it is used."""

import math

from blake3 import blake3

from diloco import merkle
from diloco.aggregate import Aggregation, longest
from diloco.codec import Codec
from diloco.norm import squared_norm
from diloco.reduce.evidence import same_norm
from diloco.reduce.messages import Frame
from diloco.rounds.roster import Plan, included
from diloco.rounds.values import ReducedChunk
from protocol.errors import Code, NodeError

QUANTIZATION = 0.064
"""Most that encoding adds to a norm, relative to it.

A block of 256 int8 values is off by at most half a scale each, sqrt(256) / 2 / 127 of its absolute maximum together,
and the maximum is no more than the block's norm. The other codecs are finer.
"""


def check_contribution(
    frame: Frame, commitment: bytes, norm: float, count: int, codec: Codec, n: int
) -> None:
    """Refuse a chunk that is not what its sender's Ready committed to.

    Args:
        frame: What came.
        commitment: The Merkle root of the Ready.
        norm: The squared norm that the Ready gives for this chunk.
        count: Chunks of the grid.
        codec: The run's codec.
        n: Values of this chunk.

    Raises:
        NodeError: ``RND_CHUNK`` or ``TRN_CODEC``, saying which check failed.
    """
    codec.check(frame.data, n)
    if not merkle.check(commitment, merkle.leaf(frame.chunk, frame.data), frame.chunk, count, frame.proof):
        raise NodeError(Code.RND_CHUNK, f"Chunk {frame.chunk} is not in the commitment of its sender.")
    real = squared_norm(codec.decode(frame.data, n))
    if not same_norm(real, norm):
        raise NodeError(
            Code.RND_CHUNK,
            f"Chunk {frame.chunk} has the squared norm {real:.6g}, its sender reported {norm:.6g}.",
        )


def check_reduced(
    data: bytes,
    entry: ReducedChunk,
    chunk: int,
    plan: Plan | None,
    codec: Codec,
    n: int,
    how: Aggregation = "mean",
) -> None:
    """Refuse reduced bytes that are not the named ones, or whose norm no aggregate of the committed chunks can have.

    The norm of the aggregate is bounded by the clipped norms; encoding adds ``QUANTIZATION`` of it.

    Args:
        data: Encoded bytes.
        entry: What the value names.
        chunk: Index in the grid.
        plan: The plan of the attempt; None checks hash and encoding only.
        codec: The run's codec.
        n: Values of this chunk.
        how: The run's aggregation.

    Raises:
        NodeError: ``RND_CHUNK`` or ``TRN_CODEC``.
    """
    if blake3(data).digest() != entry.digest:
        raise NodeError(Code.RND_CHUNK, f"Reduced chunk {chunk} does not have the hash that the value names.")
    codec.check(data, n)
    if plan is None:
        return
    here = [each for position, each in enumerate(plan.roster) if included(entry, position)]
    if not here:
        raise NodeError(Code.RND_CHUNK, f"Reduced chunk {chunk} names no contributor.")
    norms = [math.sqrt(plan.readys[each.peer].norms[chunk]) for each in here]
    weights, clips = [each.weight for each in here], [each.clip for each in here]
    bound = longest(norms, weights, clips=clips, how=how) * (1 + QUANTIZATION)
    real = math.sqrt(squared_norm(codec.decode(data, n)))
    if real > bound + 1e-12:
        raise NodeError(
            Code.RND_CHUNK,
            f"Reduced chunk {chunk} has the norm {real:.6g}; its contributions allow {bound:.6g}.",
        )
