"""On hidden states of SmolLM2-135M-Instruct: honest work passes, and no forgery does.

Prover states come from cached decoding in a batch of 16, verifier states from a prefill; the policies were fitted to
other texts (``tests/eval/toploc/excerpt.py``).
"""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.toploc.conftest import VECTORS
from toploc import Fault, Policy, ProofPoly, build_fingerprints, build_proofs, check, verify_proofs
from toploc.chunks import pick


@pytest.fixture(scope="module")
def real():
    return load_file(VECTORS / "smollm2.safetensors")


@pytest.fixture(scope="module", params=["polynomial", "projection"])
def policy(request):
    return Policy.load(VECTORS / f"smollm2-{request.param}.json")


@pytest.fixture(scope="module")
def polynomial():
    return Policy.load(VECTORS / "smollm2-polynomial.json")


def _proofs(policy, states):
    if policy.projection is None:
        return build_proofs(states, 32, 128, skip_prefill=True)
    return build_fingerprints(states, 32, policy.projection, skip_prefill=True)


def _faults(verdict):
    return {reason.fault for reason in verdict.reasons}


def test_honest_work_is_accepted(policy, real):
    for prover, verifier in zip(real["prover"], real["verifier"], strict=True):
        assert check(verifier, _proofs(policy, prover), policy)
        assert check(verifier[:40], _proofs(policy, prover[:40]), policy)


def test_int8_weights_are_refused_where_the_published_cut_offs_see_nothing(real, polynomial):
    projection = Policy.load(VECTORS / "smollm2-projection.json")
    for prover, verifier in zip(real["int8_prover"], real["verifier"], strict=True):
        proofs = build_proofs(prover, 32, 128, skip_prefill=True)
        results = verify_proofs(verifier, proofs, 32, 128, skip_prefill=True)
        assert all(
            r.exp_mismatches <= 38 and r.mant_err_mean <= 10 and r.mant_err_median <= 8 for r in results
        )
        assert _faults(check(verifier, _proofs(projection, prover), projection)) == {Fault.SCORE}


def test_proofs_of_other_texts_and_other_chunks_are_refused(policy, real):
    count = len(real["prover"])
    for number in range(count):
        own = _proofs(policy, real["prover"][number])
        other = _proofs(policy, real["prover"][(number + 1) % count])
        for forged in (other, [own[0], other[1]], list(reversed(own)), [own[0], own[0]]):
            assert not check(real["verifier"][number], forged, policy)


def _usual(texts, modulus):
    met = {}
    for text in texts:
        for start in (0, 32):
            picked = pick(text[start : start + 32], 128)
            for index, bits in zip(picked.indices.tolist(), picked.bits.tolist(), strict=True):
                met.setdefault(index % modulus, []).append(bits)
    usual = sorted(met, key=lambda place: -len(met[place]))[:128]
    points = {place: sorted(met[place])[len(met[place]) // 2] for place in usual}
    for place in range(modulus):
        if len(points) == 128:
            break
        points.setdefault(place, 0x4100)
    return ProofPoly(ProofPoly.from_points(list(points), list(points.values())).coeffs, modulus)


def test_polynomials_that_needed_no_inference_are_refused(real, polynomial):
    """Made of everything that the other texts have in common."""
    for number, verifier in enumerate(real["verifier"]):
        others = [text for other, text in enumerate(real["prover"]) if other != number]
        bits = np.concatenate([pick(text[:32], 128).bits for text in others])
        common = int(np.bincount(bits).argmax())
        constant = ProofPoly([common] + [0] * 127, 65497)
        assert {Fault.REPEATS, Fault.SIGNS, Fault.SCORE} <= _faults(
            check(verifier, [constant] * 2, polynomial)
        )
        template = _usual(others, 65497)
        assert {Fault.GROSS, Fault.SCORE} <= _faults(check(verifier, [template] * 2, polynomial))
        by_channel = _usual(others, 576)
        assert _faults(check(verifier, [by_channel] * 2, polynomial)) == {Fault.MODULUS}


def test_even_with_the_right_modulus_a_value_per_channel_is_refused(real, polynomial):
    """Steady outlier channels: the forger knows which channels are large and how large they usually are."""
    for number, verifier in enumerate(real["verifier"]):
        others = torch.cat([text for other, text in enumerate(real["prover"]) if other != number]).float()
        median = others.median(dim=0).values
        usual = median.abs().topk(4).indices
        points = {}
        for token in range(32):
            for channel in usual.tolist():
                value = median[channel : channel + 1].bfloat16().view(torch.int16).item() & 0xFFFF
                points[token * 576 + channel] = value
        forged = ProofPoly.from_points(list(points), list(points.values()))
        assert Fault.SCORE in _faults(check(verifier, [forged] * 2, polynomial))
