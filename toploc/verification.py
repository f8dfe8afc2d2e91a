"""Measuring how far activations are from proofs, with the reference package's names, arguments and numbers.

These functions measure; they do not judge the proof's form. Whoever must decide about a stranger's proofs
uses ``toploc.check``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toploc.chunks import Activations, Picked, pick_chunks
from toploc.field import evaluate
from toploc.kernels import kernel
from toploc.proof import ProofPoly

NO_MATCH = float(2**64)
"""Mean and median where no exponent agrees."""


@dataclass(frozen=True, slots=True, repr=False)
class VerificationResult:
    """Distance of a chunk's activations from its proof; every number grows with the distance.

    Attributes:
        exp_mismatches: of the chunk's largest activations, how many have another exponent in the proof.
        mant_err_mean: mean difference of the mantissas (7 bits, float16 10) where exponents agree; 2^64 when none does.
        mant_err_median: the median of the same (the upper of the two middle ones of an even count).
    """

    exp_mismatches: int
    mant_err_mean: float
    mant_err_median: float

    def __repr__(self) -> str:
        """The reference package's text."""
        return (
            f"VerificationResult[exp_mismatches={self.exp_mismatches}, "
            f"mant_err_mean={self.mant_err_mean:g}, mant_err_median={self.mant_err_median:g}]"
        )


def claimed(picked: Picked, proof: ProofPoly) -> npt.NDArray[np.int64]:
    """What ``proof`` says the activations at the picked positions are: numbers in [0, 65497).

    Raises:
        ValueError: the proof's modulus is 0.
    """
    if proof.modulus == 0:
        raise ValueError("a null proof claims nothing")
    values = np.empty(picked.indices.size, np.uint32)
    evaluate(proof.coefficients, (picked.indices % proof.modulus).astype(np.uint32), values)
    return values.astype(np.int64)


@kernel
def _distance(values, bits, mantissa, counts):  # type: ignore[no-untyped-def]
    """[mismatches, matches, sum of mantissa differences, their upper median]; ``mantissa`` masks its bits."""
    for i in range(mantissa + 1):
        counts[i] = 0
    total = 0
    matches = 0
    for i in range(bits.size):
        own = np.int64(bits[i])
        if (own ^ values[i]) & (0x7FFF ^ mantissa) == 0:
            difference = abs((own & mantissa) - (values[i] & mantissa))
            counts[difference] += 1
            total += difference
            matches += 1
    median = 0
    below = counts[0]
    while matches and below <= matches // 2:
        median += 1
        below += counts[median]
    return bits.size - matches, matches, total, median


def distance(
    values: npt.NDArray[np.int64], bits: npt.NDArray[np.uint16], half: bool = False
) -> VerificationResult:
    """The distance of bit patterns from what was claimed for them; ``half``: float16, else bfloat16."""
    mantissa = 0x3FF if half else 0x7F
    mismatches, matches, total, median = _distance(values, bits, mantissa, np.empty(mantissa + 1, np.int64))
    if matches == 0:
        return VerificationResult(mismatches, NO_MATCH, NO_MATCH)
    return VerificationResult(mismatches, total / matches, float(median))


def measure(picked: Picked, proof: ProofPoly) -> VerificationResult:
    """The distance of one chunk from its proof; a null proof matches nothing."""
    if proof.modulus == 0:
        return VerificationResult(int(picked.indices.size), NO_MATCH, NO_MATCH)
    return distance(claimed(picked, proof), picked.bits, picked.half)


def verify_proofs(
    activations: Activations,
    proofs: Sequence[ProofPoly],
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
) -> list[VerificationResult]:
    """Distance of every chunk of ``activations`` from its proof; arguments as for ``build_proofs``.

    Raises:
        TypeError: as ``build_proofs``.
        ValueError: as ``build_proofs``, or there are not as many proofs as chunks.
    """
    chunks = pick_chunks(activations, decode_batching_size, topk, skip_prefill)
    if len(chunks) != len(proofs):
        raise ValueError(f"{len(proofs)} proofs for {len(chunks)} chunks")
    return [measure(picked, proof) for picked, proof in zip(chunks, proofs, strict=True)]


def verify_proofs_bytes(
    activations: Activations,
    proofs: Sequence[bytes],
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
) -> list[VerificationResult]:
    """As ``verify_proofs``, from bytes.

    Raises:
        ValueError: also when a proof is not well-formed.
    """
    decoded = [ProofPoly.from_bytes(proof) for proof in proofs]
    return verify_proofs(activations, decoded, decode_batching_size, topk, skip_prefill)


def verify_proofs_base64(
    activations: Activations,
    proofs: Sequence[str],
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
) -> list[VerificationResult]:
    """As ``verify_proofs``, from base64 text.

    Raises:
        ValueError: also when a proof is not well-formed.
    """
    decoded = [ProofPoly.from_base64(proof) for proof in proofs]
    return verify_proofs(activations, decoded, decode_batching_size, topk, skip_prefill)
