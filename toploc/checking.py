"""Strict verification: is this the work of the model, the prompt and the precision that are claimed?

Everything about a stranger's proofs is judged: their number, their form, the modulus, signs, repeated values,
distances. Bad proofs give a verdict, never an exception; exceptions are for the verifier's own mistakes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch

from toploc.chunks import Activations, Picked, pick_chunks
from toploc.evidence import ChunkEvidence, compare, modulus_doubt, statistics
from toploc.field import PRIME
from toploc.policy import Level, Policy
from toploc.proof import ProofPoly
from toploc.verification import VerificationResult

AnyProof = ProofPoly | bytes | str


class Fault(StrEnum):
    """Why proofs are refused."""

    COUNT = "count"
    MALFORMED = "malformed"
    LENGTH = "length"
    NOT_CANONICAL = "not-canonical"
    MODULUS = "modulus"
    SIGNS = "signs"
    REPEATS = "repeats"
    GROSS = "gross"
    THRESHOLDS = "thresholds"
    SCORE = "score"


@dataclass(frozen=True, slots=True)
class Reason:
    """One fault: of one chunk, or of the whole (``chunk`` is None)."""

    fault: Fault
    chunk: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ``check`` found.

    Attributes:
        accepted: no fault was found.
        reasons: every fault found.
        score: the largest deviation from the honest distribution (see ``toploc.policy.Level``); None without a
            calibrated policy, and where the proofs' form forbids comparing.
        false_positive_rate: share of honest work of this length expected to score at least as high; None with it.
        results: the reference package's three numbers per chunk, where they could be taken.
    """

    accepted: bool
    reasons: tuple[Reason, ...]
    score: float | None
    false_positive_rate: float | None
    results: tuple[VerificationResult, ...]

    def __bool__(self) -> bool:
        """Whether the proofs are accepted."""
        return self.accepted


def check(activations: Activations, proofs: Sequence[AnyProof], policy: Policy) -> Verdict:
    """Judge a stranger's ``proofs`` against the verifier's own ``activations``.

    Args:
        activations: last hidden states that the verifier computed for the claimed text: one ``[T, H]`` tensor, or
            one ``[H]`` or ``[1, H]`` tensor per step (the first a whole prefill unless ``policy.skip_prefill``).
        proofs: in order; as objects, bytes or base64 text, in any mixture.
        policy: see ``toploc.calibrate`` and ``Policy.published``.

    Raises:
        TypeError: activations are not tensors of a supported type.
        ValueError: activations hold NaN or infinity, or steps of different width.
    """
    hidden = _width(activations)
    picks = pick_chunks(activations, policy.decode_batching_size, policy.topk, policy.skip_prefill)
    for picked in picks:
        if ((picked.bits & 0x7F80) == 0x7F80).any():
            raise ValueError("the verifier's activations hold NaN or infinity")
    if len(proofs) != len(picks):
        sentence = f"{len(proofs)} proofs for {len(picks)} chunks"
        return Verdict(False, (Reason(Fault.COUNT, None, sentence),), None, None, ())
    reasons: list[Reason] = []
    chunks: list[ChunkEvidence] = []
    complete = True
    for number, (picked, given) in enumerate(zip(picks, proofs, strict=True)):
        sound = _form(picked, given, number, reasons)
        if sound is None or picked.size == 0:
            complete = complete and sound is not None
            continue
        chunk = compare(picked, sound, hidden, _rows(number, picked, hidden, policy))
        chunks.append(chunk)
        _distances(chunk, number, policy, reasons)
    score: float | None = None
    rate: float | None = None
    decoding = chunks if policy.skip_prefill or not picks or picks[0].size == 0 else chunks[1:]
    if policy.levels and decoding and complete:
        score, limit, rate = judge(decoding, policy.levels)
        if score > limit:
            sentence = f"score {score:.1f} is above {limit:.1f}: honest work scores so high in {rate:.2g} of all cases"
            reasons.append(Reason(Fault.SCORE, None, sentence))
    return Verdict(not reasons, tuple(reasons), score, rate, tuple(chunk.result for chunk in chunks))


def judge(chunks: Sequence[ChunkEvidence], levels: Sequence[Level]) -> tuple[float, float, float]:
    """Score of a sequence, the limit that holds for it, and the false-positive rate at the score.

    A sequence of a calibrated length is judged as one run. A longer one is cut into runs of the longest calibrated
    length (the last one ends with the sequence) and has the score of its worst run: a short forgery does not
    vanish in a long text. Each run is a chance to err, so limits rise as the rates of all runs add up.
    """
    fitting = [level for level in levels if level.chunks <= len(chunks)]
    level = fitting[-1] if fitting else levels[0]
    length = min(level.chunks, len(chunks))
    starts = [*range(0, len(chunks) - length, length), len(chunks) - length]
    score = max(deviation(chunks[start : start + length], level) for start in starts)
    limit = level.limit + level.tail_mean * math.log(len(starts))
    rate = min(1.0, len(starts) * level.false_positive_rate(score))
    return score, limit, rate


def deviation(chunks: Sequence[ChunkEvidence], level: Level) -> float:
    """Score of one run: the largest deviation of its statistics.

    A statistic of fewer points than at calibration (a short text) varies more, by the root of how many times fewer.
    """
    found = statistics(chunks)
    measured = found.points > 0
    logs = np.log(np.maximum(found.values, 1e-3))
    fewer = np.maximum(np.array(level.points) / np.maximum(found.points, 1), 1.0)
    deviations = (logs - np.array(level.centre)) / (np.array(level.scale) * np.sqrt(fewer))
    return float(np.max(deviations, where=measured, initial=-99.0))


def _width(activations: Activations) -> int:
    if isinstance(activations, torch.Tensor):
        if activations.dim() != 2:
            raise ValueError(f"activations must be [T, H], not {tuple(activations.shape)}")
        return max(1, int(activations.shape[1]))
    widths = {step.shape[-1] if step.dim() else 0 for step in activations if step.numel()}
    if len(widths) > 1 or 0 in widths:
        raise ValueError(f"steps have different widths: {sorted(widths)}")
    return next(iter(widths), 1)


def _rows(number: int, picked: Picked, hidden: int, policy: Policy) -> int:
    """Tokens of a full chunk; a prefill is always a full one."""
    if number == 0 and not policy.skip_prefill:
        return max(1, picked.size // hidden)
    return policy.decode_batching_size


def _form(picked: Picked, given: AnyProof, number: int, reasons: list[Reason]) -> ProofPoly | None:
    """The proof, where its form lets it be compared; faults go to ``reasons``."""
    try:
        proof = decoded(given)
    except (TypeError, ValueError) as error:
        reasons.append(Reason(Fault.MALFORMED, number, str(error)))
        return None
    if len(proof) != picked.indices.size:
        sentence = f"{len(proof)} coefficients for {picked.indices.size} points"
        reasons.append(Reason(Fault.LENGTH, number, sentence))
        return None
    if proof.coefficients.size and int(proof.coefficients.max()) >= PRIME:
        reasons.append(Reason(Fault.NOT_CANONICAL, number, f"a coefficient is not below {PRIME}"))
        return None
    if picked.size == 0:
        return proof
    doubt = modulus_doubt(picked, proof)
    if doubt is not None:
        reasons.append(Reason(Fault.MODULUS, number, f"modulus {doubt}"))
        return None
    return proof


def decoded(given: AnyProof) -> ProofPoly:
    """A proof from whatever form it came in.

    Raises:
        TypeError: neither a proof nor bytes nor text.
        ValueError: not well-formed.
    """
    if isinstance(given, ProofPoly):
        return given
    return ProofPoly.from_base64(given) if isinstance(given, str) else ProofPoly.from_bytes(given)


def _distances(chunk: ChunkEvidence, number: int, policy: Policy, reasons: list[Reason]) -> None:
    """Per-chunk cut-offs."""
    result, limits = chunk.judged, policy.thresholds
    for value, limit, name in (
        (result.exp_mismatches, math.ceil(limits.exp_mismatches * chunk.share), "exponents differ"),
        (result.mant_err_mean, limits.mant_err_mean, "is the mean mantissa difference"),
        (result.mant_err_median, limits.mant_err_median, "is the median mantissa difference"),
    ):
        if value > limit:
            reasons.append(Reason(Fault.THRESHOLDS, number, f"{value:.4g} {name}, at most {limit:g} may"))
    if chunk.sign_mismatches > policy.sign_mismatches:
        sentence = f"{chunk.sign_mismatches} signs differ, at most {policy.sign_mismatches} may"
        reasons.append(Reason(Fault.SIGNS, number, sentence))
    if policy.gross is not None and chunk.gross > policy.gross:
        reasons.append(
            Reason(Fault.GROSS, number, f"{chunk.gross} points are missing, at most {policy.gross} may")
        )
    factor, more = policy.repeats
    if chunk.repeats > factor * chunk.own_repeats + more:
        sentence = (
            f"one value occurs {chunk.repeats} times, among the verifier's own {chunk.own_repeats} times"
        )
        reasons.append(Reason(Fault.REPEATS, number, sentence))
