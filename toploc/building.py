"""Building proofs with the reference package's names, arguments and bytes."""

from toploc.chunks import Activations, Picked, pick_chunks
from toploc.proof import ProofPoly


def proof_of(picked: Picked) -> ProofPoly:
    """The proof of one chunk; the null proof of length 0 when the chunk is empty."""
    if picked.size == 0:
        return ProofPoly.null(0)
    return ProofPoly.through(picked.indices, picked.bits)


def build_proofs(
    activations: Activations, decode_batching_size: int, topk: int, skip_prefill: bool = False
) -> list[ProofPoly]:
    """One proof for the prefill (``activations[0]``, unless skipped), then one per ``decode_batching_size`` steps.

    Args:
        activations: last hidden states: one tensor per step, or one tensor whose first dimension is the steps.
            bfloat16, float16 (proved by its own bits) or float32 (rounded to bfloat16); any device; any strides.
        decode_batching_size: steps per proof; the last may have fewer.
        topk: points per proof; a chunk with fewer elements gives all of them.
        skip_prefill: every step is a decode step.

    Returns:
        The proofs in order; none for no activations. NaN and infinity are values like others (and largest).

    Raises:
        TypeError: not tensors of one of the three types.
        ValueError: an argument is below 1.
    """
    return [proof_of(picked) for picked in pick_chunks(activations, decode_batching_size, topk, skip_prefill)]


def build_proofs_bytes(
    activations: Activations, decode_batching_size: int, topk: int, skip_prefill: bool = False
) -> list[bytes]:
    """As ``build_proofs``, each as bytes: 2 + 2 ``topk`` of them."""
    return [proof.to_bytes() for proof in build_proofs(activations, decode_batching_size, topk, skip_prefill)]


def build_proofs_base64(
    activations: Activations, decode_batching_size: int, topk: int, skip_prefill: bool = False
) -> list[str]:
    """As ``build_proofs``, each as base64 text."""
    return [
        proof.to_base64() for proof in build_proofs(activations, decode_batching_size, topk, skip_prefill)
    ]
