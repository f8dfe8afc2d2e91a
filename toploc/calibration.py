"""From honest work, measured, to a policy: how far apart are prover and verifier when nobody lies?

Honest pairs should cover what honest provers and verifiers differ in: batch sizes, attention kernels, computing types,
devices, cached decoding against prefill. What is not among them may later be refused; what is among them sets the
resolution: changes of a model that shift its activations less than honest differences do cannot be told from those.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from toploc.checking import AnyProof, check, decoded, differences
from toploc.chunks import Activations, pick_chunks
from toploc.evidence import POWERS, STATISTICS, ChunkEvidence, Differences, compare, statistics
from toploc.policy import Level, Policy, Rate, Thresholds
from toploc.projection import Fingerprint, Projection, chunk_rows

TAIL_SHARE = 0.1
"""Share of the honest runs, the most deviating, that the fall-off of the tail is estimated from."""

_LEAST_SCALE = 0.02  # of the logarithm: a statistic that never varies still may by 2 %
_LEAST_TAIL = 1.0  # about what a normal distribution's highest tenth gives
_ABOVE_HIGHEST = 1.1
_FEW = 20
_BY_CHANCE = 16.0  # mean square of residues' differences: of any two residues it is 21.3


@dataclass(frozen=True, slots=True)
class Pair:
    """A prover's proofs and a verifier's activations of one sequence (decode steps only, no prefill)."""

    proofs: Sequence[AnyProof]
    activations: Activations


def calibrate(
    honest: Mapping[str, Sequence[Pair]],
    dishonest: Mapping[str, Sequence[Pair]] | None = None,
    *,
    model: str,
    dtype: str = "bfloat16",
    decode_batching_size: int = 32,
    topk: int = 128,
    projection: Projection | None = None,
    target: float = 1e-4,
    longest: int = 4,
) -> Policy:
    """Fit a policy to honest pairs and measure its error rates.

    False positives are measured on sequences that the judging policy was not fitted to: each half of every kind of
    pair is judged by a policy fitted to the other halves. Pair ``i`` of every kind should be the same sequence.

    Args:
        honest: pairs by kind, such as "batch 16 against batch 1".
        dishonest: pairs that should be refused, by case.
        model: recorded for people.
        dtype: recorded for people.
        decode_batching_size: tokens per chunk.
        topk: points per proof.
        projection: the directions, where the pairs' proofs are of the projection scheme.
        target: false-positive rate per sequence aimed at.
        longest: longest run of chunks judged together, if honest sequences are long enough.

    Raises:
        ValueError: fewer than 20 honest pairs in a half (40 in all), an honest proof that cannot be compared at all or
            has nothing in common with its activations, a target outside (0, 1), or ``longest`` below 1.
    """
    if not 0 < target < 1 or longest < 1:
        raise ValueError(f"target must be between 0 and 1 and longest at least 1, not {target} and {longest}")
    base = Policy(model, dtype, decode_batching_size, topk, projection=projection)
    halves = [
        {kind: pairs[: len(pairs) // 2] for kind, pairs in honest.items()},
        {kind: pairs[len(pairs) // 2 :] for kind, pairs in honest.items()},
    ]
    fewest = min(sum(map(len, half.values())) for half in halves)
    if fewest < _FEW:
        raise ValueError(f"{fewest} honest pairs in a half are too few, it takes {_FEW}")
    policy = fit(honest, base, target=target, longest=longest)
    across = [fit(half, base, target=target, longest=longest) for half in reversed(halves)]
    refused = {
        kind: rate(
            sum(
                not check(pair.activations, pair.proofs, judge)
                for half, judge in zip(halves, across, strict=True)
                for pair in half[kind]
            ),
            len(honest[kind]),
        )
        for kind in honest
    }
    accepted = {
        case: rate(sum(bool(check(pair.activations, pair.proofs, policy)) for pair in pairs), len(pairs))
        for case, pairs in (dishonest or {}).items()
    }
    return replace(policy, false_positives=refused, false_negatives=accepted)


def fit(honest: Mapping[str, Sequence[Pair]], base: Policy, *, target: float, longest: int) -> Policy:
    """``base`` with limits fitted to the honest pairs; its error rates are not measured.

    Raises:
        ValueError: as ``calibrate``.
    """
    measured = [evidence(pair, base) for pairs in honest.values() for pair in pairs]
    measured = [found for found in measured if found[0]]
    if len(measured) < _FEW:
        raise ValueError(f"{len(measured)} honest pairs are too few, it takes {_FEW}")
    sequences = [compared for compared, _ in measured]
    for compared, found in measured:
        if _unrelated(compared, found):
            raise ValueError("an honest proof has nothing in common with its activations")
    available = max(len(sequence) for sequence in sequences)
    levels = []
    for length in range(1, min(longest, available) + 1):
        runs = [
            sequence[start : start + length]
            for sequence in sequences
            for start in range(0, len(sequence) - length + 1, length)
        ]
        if len(runs) >= _FEW:
            levels.append(level_of(runs, length, target))
    chunks = [chunk for _, found in measured for chunk in found]
    fitted = replace(base, levels=tuple(levels))
    return fitted if base.projection else replace(fitted, **_cut_offs(chunks, base))


def _unrelated(compared: Sequence[Differences], found: Sequence[ChunkEvidence]) -> bool:
    """Whether differences are those of chance: most points missing, or residues spread over all of their circle."""
    if found:
        return any(chunk.gross > chunk.differences.ulps.size / 2 for chunk in found)
    points = np.concatenate([chunk.ulps for chunk in compared])
    return float(np.mean(points**2)) > _BY_CHANCE


def _cut_offs(chunks: Sequence[ChunkEvidence], base: Policy) -> dict[str, Any]:
    """Per-chunk cut-offs with room above the worst honest chunk, and never below those of ``base``."""
    exponents = max(chunk.judged.exp_mismatches for chunk in chunks)
    mean = max(chunk.judged.mant_err_mean for chunk in chunks)
    median = max(chunk.judged.mant_err_median for chunk in chunks)
    return {
        "thresholds": Thresholds(
            max(base.thresholds.exp_mismatches, _half_more(exponents, 4)),
            max(base.thresholds.mant_err_mean, _half_more(mean, 1)),
            max(base.thresholds.mant_err_median, _half_more(median, 1)),
        ),
        "gross": _half_more(max(chunk.gross for chunk in chunks), 4),
        "sign_mismatches": _half_more(max(chunk.sign_mismatches for chunk in chunks), 3),
    }


def evidence(pair: Pair, policy: Policy) -> tuple[list[Differences], list[ChunkEvidence]]:
    """Every chunk of a pair compared: the differences, and all else that the polynomial scheme knows.

    Raises:
        ValueError: the proofs' number or form does not allow it.
    """
    size = policy.decode_batching_size
    if policy.projection is not None:
        claims = [Fingerprint.from_bytes(proof) for proof in pair.proofs if isinstance(proof, bytes)]
        chunks = [policy.projection.project(rows) for rows in chunk_rows(pair.activations, size, True)]
        return [differences(claim, own, size) for claim, own in zip(claims, chunks, strict=True)], []
    picks = pick_chunks(pair.activations, size, policy.topk, True)
    hidden = pair.activations[0].shape[-1] if len(picks) else 1
    found = [
        compare(picked, decoded(proof), hidden, size)
        for picked, proof in zip(picks, pair.proofs, strict=True)
    ]
    return [chunk.differences for chunk in found], found


def _half_more(worst: float, least: int) -> int:
    """Half as much again as the worst seen, and at least ``least`` more."""
    return math.ceil(max(1.5 * worst, worst + least))


def level_of(runs: Sequence[Sequence[Differences]], length: int, target: float) -> Level:
    """The honest distribution over ``runs``, each of ``length`` chunks, and the limit for a rate of ``target``."""
    found = [statistics(run) for run in runs]
    logs = np.log(np.maximum([each.values for each in found], 1e-3))
    points = np.median([each.points for each in found], axis=0).astype(int)
    centre = np.median(logs, axis=0)
    scale = np.maximum((np.quantile(logs, 0.95, axis=0) - centre) / 1.645, _LEAST_SCALE)
    apart = np.sort((logs - centre) / scale, axis=0)
    above = max(2, round(TAIL_SHARE * len(runs)))
    start = np.maximum(apart[-above - 1], 1e-6)
    # A mean of few excesses is uncertain by its root: the upper end of what it may be.
    excess = np.mean(np.maximum(apart[-above:], start) ** POWERS, axis=0) - start**POWERS
    mean = np.maximum(excess * (1 + 2 / math.sqrt(above)), _LEAST_TAIL)
    fitted = (start**POWERS + mean * math.log(len(STATISTICS) * TAIL_SHARE / target)) ** (
        1 / np.array(POWERS)
    )
    limit = np.maximum(fitted, _ABOVE_HIGHEST * apart[-1])
    return Level(
        chunks=length,
        centre=tuple(centre.tolist()),
        scale=tuple(scale.tolist()),
        points=tuple(points.tolist()),
        tail_from=tuple(start.tolist()),
        tail_mean=tuple(mean.tolist()),
        limit=tuple(limit.tolist()),
        tail_share=TAIL_SHARE,
        runs=len(runs),
    )


def rate(count: int, total: int) -> Rate:
    """``count`` of ``total`` with its 95 % interval (Clopper and Pearson 1934)."""
    if total == 0:
        return Rate(0, 0, 0.0, 1.0)
    low = 0.0 if count == 0 else _share(lambda share: 1 - _at_most(count - 1, total, share) < 0.025)
    high = 1.0 if count == total else _share(lambda share: _at_most(count, total, share) > 0.025)
    return Rate(count, total, low, high)


def _share(below: Callable[[float], bool]) -> float:
    """The share at which ``below`` turns from true to false, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if below(middle):
            low = middle
        else:
            high = middle
    return low


def _at_most(count: int, total: int, share: float) -> float:
    """Chance of at most ``count`` of ``total`` at ``share``."""
    if share <= 0.0:
        return 1.0
    if share >= 1.0:
        return float(count >= total)
    logs = [
        math.lgamma(total + 1) - math.lgamma(i + 1) - math.lgamma(total - i + 1)
        + i * math.log(share) + (total - i) * math.log1p(-share)
        for i in range(count + 1)
    ]  # fmt: skip
    return min(1.0, math.fsum(math.exp(value) for value in logs))
