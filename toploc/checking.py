"""Strict verification: is this the work of the model, the prompt and the precision that are claimed?

Everything about a stranger's proofs is judged: their number, their form, the modulus, signs, repeated values,
distances. Bad proofs give a verdict, never an exception; exceptions are for the verifier's own mistakes.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from toploc.chunks import Activations, Picked, check_type, pick_chunks
from toploc.evidence import CLIP, ChunkEvidence, Differences, compare, modulus_doubt
from toploc.field import PRIME
from toploc.policy import Policy
from toploc.projection import Fingerprint, Projection, chunk_rows
from toploc.proof import ProofPoly
from toploc.scoring import judge
from toploc.verdict import Fault, Reason, Verdict
from toploc.verification import VerificationResult

AnyProof = ProofPoly | bytes | str


def check(activations: Activations, proofs: Sequence[AnyProof], policy: Policy) -> Verdict:
    """Judge a stranger's ``proofs`` against the verifier's own ``activations``.

    Args:
        activations: last hidden states that the verifier computed for the claimed text: one ``[T, H]`` tensor, or
            one ``[H]`` or ``[1, H]`` tensor per step (the first a whole prefill unless ``policy.skip_prefill``).
        proofs: in order; as objects, bytes or base64 text, in any mixture (bytes of the projection scheme).
        policy: see ``toploc.calibrate`` and ``Policy.published``; it also says which scheme the proofs are of.

    Raises:
        TypeError: activations are not tensors of a supported type.
        ValueError: activations hold NaN or infinity, or steps of different width.
    """
    hidden = _width(activations)
    reasons: list[Reason] = []
    compared: list[Differences | None]
    results: tuple[VerificationResult, ...] = ()
    if policy.projection is not None:
        compared = _fingerprints(activations, proofs, policy, policy.projection, reasons)
    else:
        evidence = _polynomials(activations, proofs, policy, hidden, reasons)
        compared = [chunk.differences if chunk else None for chunk in evidence]
        results = tuple(chunk.result for chunk in evidence if chunk)
    score: float | None = None
    rate: float | None = None
    decoding = compared if policy.skip_prefill else compared[1:]
    whole = [chunk for chunk in decoding if chunk is not None]
    if policy.levels and whole and len(whole) == len(decoding):
        score, rate = judge(whole, policy.levels)
        if score > 1:
            sentence = f"score {score:.2f} is above 1: honest work scores so high in {rate:.2g} of all cases"
            reasons.append(Reason(Fault.SCORE, None, sentence))
    return Verdict(not reasons, tuple(reasons), score, rate, results)


def _width(activations: Activations) -> int:
    if isinstance(activations, torch.Tensor):
        if activations.dim() != 2:
            raise ValueError(f"activations must be [T, H], not {tuple(activations.shape)}")
        return max(1, int(activations.shape[1]))
    for step in activations:
        check_type(step)
    widths = {step.shape[-1] if step.dim() else 0 for step in activations if step.numel()}
    if len(widths) > 1 or 0 in widths:
        raise ValueError(f"steps have different widths: {sorted(widths)}")
    return next(iter(widths), 1)


def _countable(proofs: Sequence[AnyProof], chunks: int, reasons: list[Reason]) -> bool:
    if len(proofs) == chunks:
        return True
    reasons.append(Reason(Fault.COUNT, None, f"{len(proofs)} proofs for {chunks} chunks"))
    return False


def _polynomials(
    activations: Activations, proofs: Sequence[AnyProof], policy: Policy, hidden: int, reasons: list[Reason]
) -> list[ChunkEvidence | None]:
    """Every chunk compared with its polynomial; None where form forbids it. Faults go to ``reasons``."""
    picks = pick_chunks(activations, policy.decode_batching_size, policy.topk, policy.skip_prefill)
    largest = [
        (picked.bits & 0x7FFF).max(initial=0) >= (0x7C00 if picked.half else 0x7F80) for picked in picks
    ]
    if any(largest):
        raise ValueError("the verifier's activations hold NaN or infinity")
    found: list[ChunkEvidence | None] = []
    if not _countable(proofs, len(picks), reasons):
        return found
    for number, (picked, given) in enumerate(zip(picks, proofs, strict=True)):
        proof = _form(picked, given, number, reasons)
        if proof is None or picked.size == 0:
            found.append(None)
            continue
        prefill = number == 0 and not policy.skip_prefill
        full = max(1, picked.size // hidden) if prefill else policy.decode_batching_size
        chunk = compare(picked, proof, hidden, full)
        found.append(chunk)
        _distances(chunk, number, policy, reasons)
    return found


def _form(picked: Picked, given: AnyProof, number: int, reasons: list[Reason]) -> ProofPoly | None:
    """The proof, where its form lets it be compared."""
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
    """A polynomial proof from whatever form it came in.

    Raises:
        TypeError: neither a proof nor bytes nor text.
        ValueError: not well-formed.
    """
    if isinstance(given, ProofPoly):
        return given
    return ProofPoly.from_base64(given) if isinstance(given, str) else ProofPoly.from_bytes(given)


def _distances(chunk: ChunkEvidence, number: int, policy: Policy, reasons: list[Reason]) -> None:
    """What one chunk is refused for, in the order of the documentation."""
    if chunk.sign_mismatches > policy.sign_mismatches:
        sentence = f"{chunk.sign_mismatches} signs differ, at most {policy.sign_mismatches} may"
        reasons.append(Reason(Fault.SIGNS, number, sentence))
    factor, more = policy.repeats
    if chunk.repeats > factor * chunk.own_repeats + more:
        sentence = (
            f"one value occurs {chunk.repeats} times, among the verifier's own {chunk.own_repeats} times"
        )
        reasons.append(Reason(Fault.REPEATS, number, sentence))
    if policy.gross is not None and chunk.gross > policy.gross:
        reasons.append(
            Reason(Fault.GROSS, number, f"{chunk.gross} points are missing, at most {policy.gross} may")
        )
    result, limits, share = chunk.judged, policy.thresholds, chunk.differences.share
    for value, limit, name in (
        (result.exp_mismatches, math.ceil(limits.exp_mismatches * share), "exponents differ"),
        (result.mant_err_mean, limits.mant_err_mean, "is the mean mantissa difference"),
        (result.mant_err_median, limits.mant_err_median, "is the median mantissa difference"),
    ):
        if value > limit:
            reasons.append(Reason(Fault.THRESHOLDS, number, f"{value:.4g} {name}, at most {limit:g} may"))


def _fingerprints(
    activations: Activations,
    proofs: Sequence[AnyProof],
    policy: Policy,
    projection: Projection,
    reasons: list[Reason],
) -> list[Differences | None]:
    """Every chunk compared with its fingerprint; None where form forbids it."""
    chunks = chunk_rows(activations, policy.decode_batching_size, policy.skip_prefill)
    found: list[Differences | None] = []
    if not _countable(proofs, len(chunks), reasons):
        return found
    for number, (rows, given) in enumerate(zip(chunks, proofs, strict=True)):
        projected = projection.project(rows)
        if not np.isfinite(projected).all():
            raise ValueError("the verifier's activations hold NaN or infinity")
        found.append(None)
        try:
            if isinstance(given, ProofPoly | str):
                raise TypeError("a proof of the projection scheme is bytes")
            claim = Fingerprint.from_bytes(given)
        except (TypeError, ValueError) as error:
            reasons.append(Reason(Fault.MALFORMED, number, str(error)))
            continue
        if claim.residues.shape != projected.shape or claim.step_exponent != projection.step_exponent:
            sentence = f"{claim.residues.shape} residues of step 2^{claim.step_exponent} for {projected.shape} points"
            reasons.append(Reason(Fault.LENGTH, number, f"{sentence} of step 2^{projection.step_exponent}"))
            continue
        found[-1] = differences(claim, projected, policy.decode_batching_size)
    return found


def differences(claim: Fingerprint, projected: np.ndarray, full_rows: int) -> Differences:
    """A fingerprint against the verifier's own projections (in steps), point by point."""
    apart = np.clip(claim.differences(projected), -CLIP, CLIP)
    rows, dimensions = apart.shape
    return Differences(
        ulps=apart.reshape(-1),
        tokens=np.repeat(np.arange(rows), dimensions),
        channels=np.tile(np.arange(dimensions), rows),
        rows=rows,
        share=min(1.0, rows / full_rows),
    )
