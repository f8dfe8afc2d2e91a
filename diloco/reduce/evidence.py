"""What shows that a member signed something false: anyone who has the run's genesis can judge it.

Two statements can be shown to be false. A *Ready* commits to a contribution: bytes under its commitment that no codec
makes, or that have another norm than it says, are enough. A *header* says that a reduced chunk is the aggregate of
contributions under given commitments, with given weights and clip factors: the contributions show whether it is,
because the aggregate is a pure function of them. Who signs a header without having the contributions cannot show it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blake3 import blake3

from diloco import merkle
from diloco.aggregate import Aggregation, reduce_chunk
from diloco.codec import Codec
from diloco.layout import Grid
from diloco.norm import squared_norm
from diloco.reduce.messages import Basis, Exhibit, Header, Input
from diloco.rounds.roster import Plan, included
from diloco.rounds.statements import Ready
from diloco.rounds.values import ReducedChunk
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from protocol.messages import decode, encode

NORM_TOLERANCE = 1e-9
"""By how much a norm may differ from the one that was reported, relative to it: other sums of the same squares."""


@dataclass(frozen=True)
class Court:
    """What judging takes.

    Attributes:
        grid: The run's chunk grid.
        codec: The run's codec.
        how: The run's aggregation.
        unseal_header: Verifies a header's envelope.
        unseal_ready: Verifies a Ready's envelope.
    """

    grid: Grid
    codec: Codec
    how: Aggregation
    unseal_header: Callable[[bytes], Sealed[Header]]
    unseal_ready: Callable[[bytes], Sealed[Ready]]


def basis_of(plan: Plan) -> bytes:
    """The encoded basis of a plan's reduce."""
    inputs = tuple(
        Input(
            peer=entry.peer, weight=entry.weight, clip=entry.clip,
            commitment=plan.readys[entry.peer].commitment,
        )
        for entry in plan.roster
    )  # fmt: skip
    return encode(Basis(inputs=inputs))


def basis_digest(basis: bytes) -> bytes:
    """The digest by which headers name a basis."""
    return blake3(basis, derive_key_context="intellect-node reduce basis v1").digest()


def statement_digest(envelope: bytes) -> bytes:
    """The digest by which exhibits of a statement are asked for."""
    return blake3(envelope).digest()


def judge(court: Court, exhibits: Sequence[Exhibit]) -> str | None:
    """Whether exhibits show that the sender of a statement lied.

    Args:
        court: The run's grid, codec and verifiers.
        exhibits: The statement, then the contributions that it is about.

    Returns:
        The liar, or None where they show that the statement is true.

    Raises:
        NodeError: ``RND_EVIDENCE``: they show neither, because they are not what was signed.
    """
    try:
        if exhibits[0].basis:
            return _judge_header(court, exhibits)
        return _judge_ready(court, exhibits)
    except (IndexError, ValueError) as error:
        raise _nothing(f"They cannot be read: {error}.") from None


def _judge_header(court: Court, exhibits: Sequence[Exhibit]) -> str | None:
    first, *contributions = exhibits
    sealed = court.unseal_header(first.statement)
    header = sealed.message
    if basis_digest(first.basis) != header.basis:
        raise _nothing("The basis is not the one that the header names.")
    inputs = decode(Basis, first.basis).inputs
    entry = ReducedChunk(digest=header.digest, included=header.included)
    used = [each for position, each in enumerate(inputs) if included(entry, position)]
    if header.chunk >= court.grid.count or not used or len(used) != len(contributions):
        raise _nothing("The contributions are not those that the header includes.")
    part = court.grid.slice(header.chunk)
    for each, shown in zip(used, contributions, strict=True):
        _check_commitment(court, shown, each.commitment, header.chunk)
    try:
        data = reduce_chunk(
            court.codec,
            [shown.data for shown in contributions],
            [each.weight for each in used],
            part.stop - part.start,
            clips=[each.clip for each in used],
            how=court.how,
        )
    except NodeError:  # bytes that no codec makes are in it, which an honest owner refuses
        return sealed.sender
    return None if blake3(data).digest() == header.digest else sealed.sender


def _judge_ready(court: Court, exhibits: Sequence[Exhibit]) -> str | None:
    first, shown = exhibits
    sealed = court.unseal_ready(first.statement)
    ready, chunk = sealed.message, shown.chunk
    if chunk >= min(court.grid.count, len(ready.norms)):
        raise _nothing(f"There is no chunk {chunk}.")
    _check_commitment(court, shown, ready.commitment, chunk)
    part = court.grid.slice(chunk)
    size = part.stop - part.start
    try:
        court.codec.check(shown.data, size)
    except NodeError:
        return sealed.sender
    real = squared_norm(court.codec.decode(shown.data, size))
    return None if same_norm(real, ready.norms[chunk]) else sealed.sender


def same_norm(real: float, reported: float) -> bool:
    """Whether a squared norm is the one that was reported."""
    return math.isclose(real, reported, rel_tol=NORM_TOLERANCE, abs_tol=1e-30)


def _check_commitment(court: Court, shown: Exhibit, commitment: bytes, chunk: int) -> None:
    leaf = merkle.leaf(chunk, shown.data)
    if shown.chunk != chunk or not merkle.check(commitment, leaf, chunk, court.grid.count, shown.proof):
        raise _nothing("A contribution is not under the commitment of its sender.")


def _nothing(why: str) -> NodeError:
    return NodeError(Code.RND_EVIDENCE, f"What was shown proves nothing. {why}")
