"""What holds for every input, not only for the vectors."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import toploc
from toploc import ProofPoly
from toploc.chunks import Picked, pick
from toploc.chunks import _pick_on_device as pick_on_device
from toploc.field import INVERSES, PRIME, evaluate, interpolate, largest_injective
from toploc.verification import measure

_POINTS = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 0xFFFF), min_size=1, max_size=140)


def _through(x, y):
    out = np.empty(len(x), np.uint16)
    interpolate(np.array(x, np.int64), PRIME, np.array(y, np.uint16), INVERSES, out)
    return out


def _at(coefficients, x):
    out = np.empty(len(x), np.uint32)
    evaluate(coefficients, np.array(x, np.uint32), out)
    return out.tolist()


def _floats(patterns, dtype=torch.bfloat16):
    return torch.tensor(np.array(patterns, np.uint16).view(np.int16)).view(dtype)


def _by_sorting(tensor, topk):
    """Positions of the largest magnitudes by a stable sort, float32 after torch's own rounding to bfloat16."""
    flat = tensor.reshape(-1)
    narrow = flat.to(torch.bfloat16) if flat.dtype is torch.float32 else flat
    bits = narrow.view(torch.int16).numpy().view(np.uint16)
    if flat.dtype is torch.float32:
        bits = np.where(flat.isnan().numpy(), np.uint16(0x7FC0), bits)
    places = np.sort(np.argsort(-(bits & 0x7FFF).astype(np.int64), kind="stable")[:topk])
    return places, bits[places]


def test_every_number_but_zero_has_its_inverse():
    numbers = np.arange(1, PRIME, dtype=np.int64)
    assert (numbers * INVERSES[1:].astype(np.int64) % PRIME == 1).all()


@given(_POINTS)
@settings(max_examples=150, deadline=None)
def test_the_polynomial_goes_through_its_points(points):
    proof = ProofPoly.from_points(list(points), list(points.values()))
    assert len(proof) == len(points)
    assert max(proof.coeffs) < PRIME
    assert [proof(x % proof.modulus) for x in points] == [y % PRIME for y in points.values()]


@given(_POINTS, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_any_order_of_the_points_gives_the_same_bytes(points, random):
    shuffled = list(points.items())
    random.shuffle(shuffled)
    ordered = ProofPoly.from_points(list(points), list(points.values()))
    assert (
        ProofPoly.from_points([x for x, _ in shuffled], [y for _, y in shuffled]).to_bytes()
        == ordered.to_bytes()
    )


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=128, unique=True))
@settings(max_examples=100, deadline=None)
def test_the_modulus_is_the_largest_that_keeps_positions_distinct(points):
    seen = np.zeros(1024, np.uint64)
    modulus = largest_injective(np.array(points, np.int64), seen)
    assert not seen.any()
    assert len({point % modulus for point in points}) == len(points)
    for larger in range(modulus + 1, PRIME + 1):
        assert len({point % larger for point in points}) < len(points)


@pytest.mark.parametrize("passed_over", [0, 1, 2, 3])
def test_moduli_are_passed_over_one_by_one(passed_over):
    """Two positions whose distance is a multiple of the largest moduli leave the next one."""
    distance = (
        int(np.prod([PRIME - step for step in range(passed_over)], dtype=np.int64)) if passed_over else 1
    )
    seen = np.zeros(1024, np.uint64)
    assert largest_injective(np.array([0, distance], np.int64), seen) == PRIME - passed_over


@given(st.integers(1, PRIME), st.data())
@settings(max_examples=150, deadline=None)
def test_a_proof_of_any_modulus_is_evaluated_modulo_it(modulus, data):
    residues = data.draw(
        st.lists(st.integers(0, modulus - 1), min_size=1, max_size=min(modulus, 128), unique=True)
    )
    indices = np.array([place + modulus * data.draw(st.integers(0, 2**20)) for place in residues], np.int64)
    bits = np.array(
        data.draw(st.lists(st.integers(0, PRIME - 1), min_size=len(residues), max_size=len(residues)))
    )
    proof = ProofPoly([int(number) for number in _through(residues, bits)], modulus)
    result = measure(Picked(indices, bits.astype(np.uint16), int(indices.max()) + 1), proof)
    assert (result.exp_mismatches, result.mant_err_mean, result.mant_err_median) == (0, 0.0, 0.0)


def test_equal_positions_have_no_modulus():
    assert largest_injective(np.array([7, 70000, 7], np.int64), np.zeros(1024, np.uint64)) == 0
    with pytest.raises(ValueError, match="distinct"):
        ProofPoly.from_points([7, 7], [1, 2])


def test_every_bit_pattern_survives_build_and_verify_up_to_the_field():
    """All 65,536 patterns: those below the prime come back as they are, the 39 above as NaN patterns less the prime."""
    for start in range(0, 1 << 16, 128):
        patterns = np.arange(start, start + 128)
        (proof,) = toploc.build_proofs([_floats(patterns)], 1, 128, skip_prefill=True)
        assert [proof(x) for x in range(128)] == (patterns % PRIME).tolist()
        (result,) = toploc.verify_proofs([_floats(patterns)], [proof], 1, 128, skip_prefill=True)
        lost = int((patterns >= PRIME).sum())
        assert (result.exp_mismatches, result.mant_err_mean) == (lost, 0.0)


@given(st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=3000), st.integers(1, 200), st.integers(0, 2))
@settings(max_examples=200, deadline=None)
def test_selection_equals_a_stable_sort(patterns, topk, kind):
    if kind == 2:
        words = np.array(patterns, np.uint32) * np.uint32(2654435761)
        tensor = torch.tensor(words.view(np.int32)).view(torch.float32)
    else:
        tensor = _floats(patterns, (torch.bfloat16, torch.float16)[kind])
    places, bits = _by_sorting(tensor, topk)
    for found in (pick([tensor], topk), pick_on_device([tensor], topk)):
        assert found.indices.tolist() == places.tolist()
        assert found.bits.tolist() == bits.tolist()
        assert found.size == len(patterns)


@given(st.lists(st.integers(0, 0x200), min_size=200, max_size=2000), st.data())
@settings(max_examples=80, deadline=None)
def test_how_a_chunk_is_cut_into_tensors_does_not_matter(patterns, data):
    tensor = _floats(patterns)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(patterns)), max_size=8)))
    pieces = [tensor[a:b] for a, b in zip([0, *cuts], [*cuts, len(patterns)], strict=True)]
    for found in (pick(pieces, 128), pick_on_device(pieces, 128)):
        whole = pick([tensor], 128)
        assert (found.indices == whole.indices).all() and (found.bits == whole.bits).all()


@pytest.mark.parametrize("hidden", [1, 31, 64, 577, 896, 4096])
@pytest.mark.parametrize("scale", ["normal", "outliers", "rising"])
def test_large_chunks_select_as_a_sort_does(hidden, scale):
    generator = torch.Generator().manual_seed(hidden)
    values = torch.randn(40, hidden, generator=generator)
    if scale == "outliers":
        values[:, ::37] *= 50
    if scale == "rising":
        values = values.reshape(-1).abs().sort().values.reshape(40, hidden)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        tensor = values.to(dtype)
        for chunk in (tensor, tensor[1:33], tensor.reshape(-1)[3:]):
            places, bits = _by_sorting(chunk, 128)
            found = pick(chunk, 128)
            assert (found.indices == places).all() and (found.bits == bits).all()


def test_float32_gives_the_proofs_of_its_bfloat16_rounding():
    values = torch.randn(40, 256, generator=torch.Generator().manual_seed(3))
    assert toploc.build_proofs_bytes(values, 32, 128) == toploc.build_proofs_bytes(values.bfloat16(), 32, 128)
    results = toploc.verify_proofs(values, toploc.build_proofs(values.bfloat16(), 32, 128), 32, 128)
    assert all(result.exp_mismatches == 0 and result.mant_err_mean == 0 for result in results)


def test_float16_is_proved_by_its_own_bits_as_the_reference_does():
    values = torch.randn(32, 256, generator=torch.Generator().manual_seed(3)).half()
    flat = values.reshape(-1)
    x = flat.abs().float().argsort(descending=True, stable=True)[:128]
    (proof,) = toploc.build_proofs(values, 32, 128, skip_prefill=True)
    assert proof == ProofPoly.from_points_tensor(x, flat[x])
    (result,) = toploc.verify_proofs(values, [proof], 32, 128, skip_prefill=True)
    assert (result.exp_mismatches, result.mant_err_mean, result.mant_err_median) == (0, 0.0, 0.0)
    (result,) = toploc.verify_proofs(values * 1.01, [proof], 32, 128, skip_prefill=True)
    assert result.exp_mismatches <= 2 and 10 < result.mant_err_mean < 20


def test_strides_gradients_and_shapes_do_not_matter():
    values = torch.randn(64, 512, generator=torch.Generator().manual_seed(4)).bfloat16()
    plain = toploc.build_proofs(values, 32, 128, skip_prefill=True)
    wide = torch.empty(64, 1024, dtype=torch.bfloat16)
    wide[:, :512] = values
    assert toploc.build_proofs(wide[:, :512], 32, 128, skip_prefill=True) == plain
    assert toploc.build_proofs(values.t().contiguous().t(), 32, 128, skip_prefill=True) == plain
    assert toploc.build_proofs(list(values.unsqueeze(1)), 32, 128, skip_prefill=True) == plain
    assert toploc.build_proofs(values.clone().requires_grad_(), 32, 128, skip_prefill=True) == plain
    spread = values.repeat_interleave(2, dim=1)[:, ::2]
    assert toploc.build_proofs(list(spread), 32, 128, skip_prefill=True) == plain


def test_not_a_number_and_infinity_are_values_like_others():
    values = torch.randn(32, 64, generator=torch.Generator().manual_seed(5)).bfloat16()
    values[3, 5], values[4, 6], values[5, 7] = float("nan"), float("inf"), float("-inf")
    proofs = toploc.build_proofs(values, 32, 16, skip_prefill=True)
    assert proofs[0](3 * 64 + 5) == 0x7FC0
    assert proofs[0](4 * 64 + 6) == 0x7F80
    (result,) = toploc.verify_proofs(values, proofs, 32, 16, skip_prefill=True)
    assert (result.exp_mismatches, result.mant_err_mean) == (0, 0.0)
    all_nan = torch.full((32, 64), float("nan"))
    assert len(toploc.build_proofs(all_nan, 32, 128, skip_prefill=True)[0]) == 128


def test_a_short_chunk_proves_what_it_has():
    values = torch.randn(33, 4, generator=torch.Generator().manual_seed(6)).bfloat16()
    proofs = toploc.build_proofs(values, 32, 128, skip_prefill=True)
    assert [len(proof) for proof in proofs] == [128, 4]
    results = toploc.verify_proofs(values, proofs, 32, 128, skip_prefill=True)
    assert [result.exp_mismatches for result in results] == [0, 0]


def test_the_modulus_of_the_proof_is_applied_in_the_one_verify_path():
    """Honest proofs whose modulus is not 65497 verify, from a tensor and from a list, at widths with collisions."""
    reduced = 0
    for seed in range(40):
        values = torch.randn(32, 4096, generator=torch.Generator().manual_seed(seed)).bfloat16()
        proofs = toploc.build_proofs(values, 32, 128, skip_prefill=True)
        reduced += proofs[0].modulus != PRIME
        for activations in (values, list(values)):
            (result,) = toploc.verify_proofs(activations, proofs, 32, 128, skip_prefill=True)
            assert (result.exp_mismatches, result.mant_err_mean, result.mant_err_median) == (0, 0.0, 0.0)
    assert reduced
