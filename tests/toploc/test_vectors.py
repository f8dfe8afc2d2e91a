"""Byte for byte what the reference package gives, wherever its answer is defined."""

import itertools

import numpy as np
import torch

import toploc
from toploc import ProofPoly, VerificationResult
from toploc.chunks import pick_chunks

_THRESHOLDS = (38, 10, 8)


def _steps(entry, activations):
    if entry.get("prefill"):
        return [activations[entry["prefill"]], *activations[entry["name"]]]
    return activations[entry["name"]]


def test_points_give_the_reference_polynomials(vectors):
    for entry in vectors["points"]:
        proof = ProofPoly.from_points(entry["x"], entry["y"])
        assert proof.modulus == entry["modulus"], entry["name"]
        assert proof.coeffs == entry["coeffs"], entry["name"]
        assert proof.to_bytes().hex() == entry["hex"]
        assert proof.to_base64() == entry["base64"]
        assert ProofPoly.from_bytes(bytes.fromhex(entry["hex"])) == proof
        assert ProofPoly.from_base64(entry["base64"]) == proof
        assert [proof(x % proof.modulus) for x in entry["x"]] == entry["eval_at_x_mod"]
        assert [proof(x) for x in entry["x"]] == entry["eval_at_x_raw"]


def test_point_tensors_give_the_same_polynomials(vectors):
    for entry in vectors["points"]:
        x, y = torch.tensor(entry["x"]), torch.tensor(entry["y"])
        assert ProofPoly.from_points_tensor(x, y).coeffs == entry["coeffs"]
        floats = torch.tensor(np.array(entry["y"], np.uint16).view(np.int16)).view(torch.bfloat16)
        assert ProofPoly.from_points_tensor(x.int(), floats).coeffs == entry["coeffs"]


def test_the_proofs_printed_in_the_reference_readme(vectors, activations):
    entry = vectors["published_readme"]
    steps = [activations[entry["prefill"]], *activations[entry["decode"]]]
    size, topk = entry["decode_batching_size"], entry["topk"]
    proofs = toploc.build_proofs_base64(steps, size, topk)
    assert proofs == entry["proofs_base64"]
    jittered = [step * 1.01 for step in steps]
    results = toploc.verify_proofs_base64(jittered, proofs, size, topk)
    assert results == [VerificationResult(*numbers) for numbers in entry["jitter_1p01"]]


def test_the_proof_printed_in_prime_rl_up_to_its_tie(vectors, activations):
    """Nine of eleven elements of equal magnitude are in the published proof; exactly one choice of nine gives it."""
    entry = vectors["published_prime_rl"]
    steps = activations[entry["activations"]]
    size, topk = entry["decode_batching_size"], entry["topk"]
    flat = steps.reshape(-1)
    magnitudes = flat.abs()
    least = magnitudes.topk(topk).values[-1]
    above = (magnitudes > least).nonzero().reshape(-1).tolist()
    tied = (magnitudes == least).nonzero().reshape(-1).tolist()
    given = []
    for choice in itertools.combinations(tied, topk - len(above)):
        x = torch.tensor(above + list(choice))
        given.append(ProofPoly.from_points_tensor(x, flat[x]).to_bytes().hex())
    assert given.count(entry["proof_hex"]) == 1
    assert toploc.build_proofs_bytes(steps, size, topk, skip_prefill=True)[0].hex() == given[0]
    proofs = [bytes.fromhex(entry["proof_hex"])]
    results = toploc.verify_proofs_bytes(steps, proofs, size, topk, skip_prefill=True)
    # The one element that the lowest-index rule takes and the published choice does not can differ, nothing else.
    (numbers,) = entry["verify"]
    assert results[0].exp_mismatches <= numbers[0] + 1
    assert (results[0].mant_err_mean, results[0].mant_err_median) == tuple(numbers[1:])


def test_whole_proofs_agree_where_no_tie_makes_them_ambiguous(vectors, activations):
    compared = 0
    for entry in vectors["sets"]:
        built = toploc.build_proofs_bytes(
            _steps(entry, activations), entry["decode_batching_size"], entry["topk"], entry["skip_prefill"]
        )
        assert len(built) == len(entry["proofs_hex"])
        for proof, expected, selected in zip(built, entry["proofs_hex"], entry["selected"], strict=True):
            assert len(proof) * 2 == len(expected)
            if selected["ties_at_kth_in"] == selected["ties_at_kth_total"]:
                assert proof.hex() == expected, entry["name"]
                compared += 1
    assert compared >= 10


def test_the_selected_points_always_give_the_reference_bytes(vectors):
    for entry in vectors["sets"]:
        for expected, selected in zip(entry["proofs_hex"], entry["selected"], strict=True):
            proof = ProofPoly.from_points(selected["indices"], selected["values_u16"])
            assert proof.to_bytes().hex() == expected


def test_selections_differ_from_the_reference_only_within_a_tie(vectors, activations):
    for entry in vectors["sets"]:
        picks = pick_chunks(
            _steps(entry, activations), entry["decode_batching_size"], entry["topk"], entry["skip_prefill"]
        )
        for pick, selected in zip(picks, entry["selected"], strict=True):
            mine = dict(zip(pick.indices.tolist(), pick.bits.tolist(), strict=True))
            theirs = dict(zip(selected["indices"], selected["values_u16"], strict=True))
            least = min(value & 0x7FFF for value in theirs.values())
            assert sorted(v & 0x7FFF for v in mine.values()) == sorted(v & 0x7FFF for v in theirs.values())
            strictly = {i: v for i, v in mine.items() if v & 0x7FFF > least}
            assert strictly == {i: v for i, v in theirs.items() if v & 0x7FFF > least}


def test_distances_are_those_of_the_reference(vectors, activations):
    """Between tied positions the reference may have taken others, so ties allow a difference of as many mismatches."""
    proofs = {entry["name"]: entry for entry in vectors["sets"]}
    exact = 0
    for entry in vectors["verify"]:
        source = proofs[entry["proofs_of"]]
        data = activations[entry["activations"]]
        size, topk = entry["decode_batching_size"], entry["topk"]
        data_proofs = [bytes.fromhex(text) for text in source["proofs_hex"]]
        results = toploc.verify_proofs_bytes(data, data_proofs, size, topk, skip_prefill=True)
        for chunk, (result, expected) in enumerate(zip(results, entry["cpp_path"], strict=True)):
            flat = data[chunk * size : (chunk + 1) * size].reshape(-1).abs().float()
            least = flat.topk(topk).values[-1]
            tied = int((flat == least).sum()) != int((flat.topk(topk).values == least).sum())
            if tied:
                loose = int((flat.topk(topk).values == least).sum())
                assert abs(result.exp_mismatches - expected[0]) <= loose, entry["name"]
            else:
                assert result == VerificationResult(*expected), entry["name"]
                exact += 1
    assert exact >= 8


def test_a_constant_polynomial_passes_the_published_thresholds(vectors):
    """The reference accepts this forgery, and so does whoever uses only the three numbers; ``check`` does not."""
    entry = vectors["malformed"]["constant_polynomial"]
    noise = torch.randn(32, 4096, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    (result,) = toploc.verify_proofs_bytes(
        noise, [bytes.fromhex(entry["proof_hex"])], 32, 128, skip_prefill=True
    )
    assert result == VerificationResult(*entry["result"][0])
    numbers = (result.exp_mismatches, result.mant_err_mean, result.mant_err_median)
    assert all(number <= limit for number, limit in zip(numbers, _THRESHOLDS, strict=True))
