"""What a chunk and its proof say about one another, point by point, and what a run of chunks says together.

Differences are counted in *ulps*: steps between neighbouring bfloat16 values (float16 is rounded to them first), over
zero and across exponents, positive where the proof's magnitude is the larger. A difference of ``GROSS`` ulps or more (a
factor of 1.4 to 2, or another sign) means that the proof does not hold the position at all: a polynomial gives noise
wherever it was not pinned.

Honest differences come from rounding and have no direction; altered weights or inputs shift the same channel in the
same direction at every token. So besides the size of the differences, their mean per channel is evidence, and it grows
with the number of tokens. An edited token leaves what came before as it was, so the last tokens are looked at by
themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toploc.chunks import Picked
from toploc.field import PRIME, largest_injective
from toploc.proof import ProofPoly
from toploc.verification import VerificationResult, claimed, distance


def _half_table() -> npt.NDArray[np.uint16]:
    """float16 bits to the bfloat16 bits nearest in value (even on ties); NaN becomes 0x7FC0."""
    with np.errstate(over="ignore", invalid="ignore"):
        wide = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    low = (wide + np.uint32(0x7FFF) + ((wide >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    low[(wide & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)] = 0x7FC0
    return low.astype(np.uint16)


HALVES: npt.NDArray[np.uint16] = _half_table()
"""bfloat16 bits for every float16 bit pattern."""

GROSS = 64
"""From how many ulps on a difference counts as a position that the proof does not hold."""

MISSED = 0.05
"""Share of a chunk's points that may be missing without entering the statistics, where they are at the edge."""

EDGE = 32
"""How many ulps above its least picked magnitude a chunk's edge reaches: there an honest prover may pick others."""

CLIP = 16.0
"""What one point can add to a statistic at most, in ulps: no single point decides."""

TAILS = (4, 8, 16)
"""How many of the last tokens are also judged by themselves."""

STATISTICS = ("spread", "bias", "shift", "worst", "peak", "tail4", "tail8", "tail16")
"""Names of the numbers that ``statistics`` gives, in its order."""

POWERS = (1.5, 2.0, 2.0, 1.5, 1.5, 1.5, 1.5, 1.5)
"""How each one's logarithm falls off far above its centre: as exp(-x^power). Normal is 2; how large differences are
varies from text to text, and what few tokens give has longer tails: between normal and exponential, 1.5."""


@dataclass(frozen=True, slots=True)
class Differences:
    """What differs between one chunk and its proof, point by point.

    Attributes:
        ulps: float64, clipped to ``CLIP``; one per point that is compared and not forgiven.
        tokens: int64, row of each point within the chunk.
        channels: int64, column of each point.
        rows: tokens in the chunk.
        share: of a full chunk's points, those that this one is compared at.
    """

    ulps: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.int64]
    channels: npt.NDArray[np.int64]
    rows: int
    share: float


@dataclass(frozen=True, slots=True)
class ChunkEvidence:
    """One chunk against one proof of the right form.

    Attributes:
        result: the three numbers of the reference package, over all points.
        judged: the same over the points that are compared, in terms of bfloat16.
        sign_mismatches: points whose exponents agree and whose signs differ.
        gross: points ``GROSS`` ulps or more away.
        repeats: how often the most frequent value occurs among those that the proof claims.
        own_repeats: the same of the verifier's own values.
        differences: of the points that are compared.
    """

    result: VerificationResult
    judged: VerificationResult
    sign_mismatches: int
    gross: int
    repeats: int
    own_repeats: int
    differences: Differences


def compare(picked: Picked, proof: ProofPoly, hidden: int, full_rows: int) -> ChunkEvidence:
    """Compare a chunk with its proof.

    Where a chunk is shorter than ``full_rows`` tokens, its k largest reach down to magnitudes at which rounding weighs
    more; only as many as a full chunk has per token enter the differences.

    Args:
        picked: the verifier's own largest activations.
        proof: of non-zero modulus.
        hidden: channels per token.
        full_rows: tokens of a full chunk.
    """
    given = claimed(picked, proof)
    result = distance(given, picked.bits, picked.half)
    narrow = HALVES[picked.bits] if picked.half else picked.bits
    values = HALVES[given].astype(np.int64) if picked.half else given
    bits = narrow.astype(np.int64)
    rows = max(1, picked.size // hidden)
    order = np.argsort(-(bits & 0x7FFF), kind="stable")
    compared = np.sort(order[: max(1, -(-bits.size * min(rows, full_rows) // full_rows))])
    signs = np.where(bits & 0x8000, -1, 1)
    difference = signs * (_ordered(values) - _ordered(bits))
    same_exponent = (values ^ bits) & 0x7F80 == 0
    sign_differs = (values ^ bits) & 0x8000 != 0
    judged = distance(values[compared], narrow[compared])
    share = compared.size / bits.size
    gross = int((np.abs(difference[compared]) >= GROSS).sum())
    magnitudes = bits[compared] & 0x7FFF
    missing = (np.abs(difference[compared]) >= CLIP) & (magnitudes <= magnitudes.min() + EDGE)
    forgiven = compared[missing][: int(MISSED * compared.size)]
    compared = np.setdiff1d(compared, forgiven, assume_unique=True)
    return ChunkEvidence(
        result=result,
        judged=judged,
        sign_mismatches=int((same_exponent & sign_differs).sum()),
        gross=gross,
        repeats=_most_frequent(values),
        own_repeats=_most_frequent(bits),
        differences=Differences(
            ulps=np.clip(difference[compared], -CLIP, CLIP).astype(np.float64),
            tokens=picked.indices[compared] // hidden,
            channels=picked.indices[compared] % hidden,
            rows=rows,
            share=share,
        ),
    )


def _ordered(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Integers that order as the bfloat16 values do, one apart where values are neighbours."""
    return np.where(bits & 0x8000, -(bits & 0x7FFF), bits & 0x7FFF)


def _most_frequent(values: npt.NDArray[np.int64]) -> int:
    return int(np.unique(values, return_counts=True)[1].max()) if values.size else 0


def modulus_doubt(picked: Picked, proof: ProofPoly) -> str | None:
    """Why the proof's modulus cannot be the largest injective one for positions like the verifier's; None if it can.

    A prover whose chunk has no more elements than the prime has no choice: distinct positions are distinct modulo it.
    In a larger chunk a few positions may differ between prover and verifier. Each allows a collision that the other
    does not see, and so a modulus that is passed over; a modulus made for another end collides far more often.
    """
    modulus = proof.modulus
    if not proof.coefficients.size <= modulus <= PRIME:
        return f"{modulus} is not between the number of points and {PRIME}"
    if picked.size <= PRIME:
        return (
            None
            if modulus == PRIME
            else f"{modulus}, although {picked.size} positions are distinct modulo {PRIME}"
        )
    collisions = picked.indices.size - int(np.unique(picked.indices % modulus).size)
    if collisions > _COLLISIONS:
        return f"{collisions} positions collide modulo {modulus}"
    own = int(largest_injective(picked.indices, np.zeros(1024, np.uint64)))
    passed = sum(
        np.unique(picked.indices % larger).size == picked.indices.size
        for larger in range(max(modulus + 1, own - 4 * _PASSED_OVER), own + 1)
    )
    if own - modulus > 4 * _PASSED_OVER or passed > _PASSED_OVER:
        return f"{modulus}, although {own} keeps the positions distinct"
    return None


# A wrong position collides with one of 128 others with a chance of 128 / 65497 per modulus; a tenth of all positions
# may be wrong. More than these happen less than once in 10^9 honest proofs.
_COLLISIONS = 4
_PASSED_OVER = 6


@dataclass(frozen=True, slots=True)
class Statistics:
    """Numbers of a run of chunks, in the order of ``STATISTICS``.

    Attributes:
        values: in ulps, each larger the further proofs and activations are apart.
        points: how many differences each is made of; 0 where there was nothing to measure.
    """

    values: npt.NDArray[np.float64]
    points: npt.NDArray[np.int64]


_FEWEST = 4


def statistics(chunks: Sequence[Differences]) -> Statistics:
    """What consecutive chunks say together.

    - ``spread``: root mean square difference of all points.
    - ``bias``: root mean square, over channels, of a channel's mean difference times the root of its count. Where
      differences are independent of one another it equals the spread.
    - ``shift``: geometric mean of the two, which a light and lasting change raises together.
    - ``worst``: largest root mean square difference of one chunk, of those that are at least half full.
    - ``peak``: largest root mean square difference of one token, of which at least ``_FEWEST`` points are assumed.
    - ``tail4`` … : root mean square difference over the last 4, 8, 16 tokens.
    """
    ulps = np.concatenate([chunk.ulps for chunk in chunks])
    channels = np.concatenate([chunk.channels for chunk in chunks])
    starts = np.cumsum([0, *(chunk.rows for chunk in chunks)])
    tokens = np.concatenate([chunk.tokens + start for chunk, start in zip(chunks, starts, strict=False)])
    counts = np.bincount(channels)
    sums = np.bincount(channels, ulps)
    seen = counts > 0
    whole = [chunk.ulps for chunk in chunks if chunk.share >= 0.5] or [ulps]
    worst = max(whole, key=_rms)
    tails = [ulps[tokens >= starts[-1] - length] for length in TAILS]
    squares = np.bincount(tokens, ulps * ulps) / np.maximum(np.bincount(tokens), _FEWEST)
    peak = float(np.sqrt(squares.max())) if squares.size else 0.0
    spread, bias = _rms(ulps), _rms(sums[seen] / np.sqrt(counts[seen]))
    values = [spread, bias, (spread * bias) ** 0.5, _rms(worst), peak, *map(_rms, tails)]
    sizes = [ulps.size, ulps.size, ulps.size, worst.size, ulps.size, *(tail.size for tail in tails)]
    return Statistics(np.array(values), np.array(sizes))


def _rms(values: npt.NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0
