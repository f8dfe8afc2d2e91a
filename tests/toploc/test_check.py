"""Strict verification: honest work passes, every known forgery is refused for the right reason."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import toploc
from tests.toploc.worlds import HIDDEN, computed, pair, states
from toploc import Fault, Policy, ProofPoly, calibrate, check
from toploc.chunks import pick_chunks
from toploc.policy import Thresholds


@pytest.fixture(scope="module")
def policy():
    return calibrate({"other batch": [pair(seed) for seed in range(48)]}, model="made up")


@pytest.fixture(scope="module")
def honest():
    return pair(1000)


def _faults(verdict):
    return {reason.fault for reason in verdict.reasons}


def test_honest_work_is_accepted_with_a_score_and_its_rate(policy):
    for seed in range(1000, 1040):
        made = pair(seed)
        verdict = check(made.activations, made.proofs, policy)
        assert verdict and verdict.reasons == ()
        assert verdict.score <= 1
        assert 0 < verdict.false_positive_rate <= 1
        assert len(verdict.results) == 4


@pytest.mark.parametrize("tokens", [1, 2, 31, 32, 33, 64, 127, 129, 200, 500])
def test_honest_work_of_any_length_is_accepted(policy, tokens):
    for seed in range(2000, 2010):
        made = pair(seed, tokens)
        assert check(made.activations, made.proofs, policy), tokens


def test_proofs_may_be_objects_bytes_or_text(policy, honest):
    first, second, third, fourth = honest.proofs
    mixed = [first.to_bytes(), second.to_base64(), third, bytearray(fourth.to_bytes())]
    assert check(honest.activations, mixed, policy)


def test_steps_may_be_a_list(policy, honest):
    assert check(list(honest.activations), honest.proofs, policy)
    assert check(list(honest.activations.unsqueeze(1)), honest.proofs, policy)


def test_float16_work_is_judged_by_the_same_policy(policy):
    for seed in range(1000, 1010):
        values = states(seed)
        ours, theirs = computed(values, 1).half(), computed(values, 2).half()
        proofs = toploc.build_proofs(theirs, 32, 128, skip_prefill=True)
        assert check(ours, proofs, policy)
        assert not check(computed(states(seed + 1), 1).half(), proofs, policy)
    with pytest.raises(ValueError, match="infinity"):
        check(torch.full((32, HIDDEN), float("inf")).half(), proofs[:1], policy)


def test_nothing_generated_is_nothing_to_refuse(policy):
    verdict = check(torch.empty(0, HIDDEN, dtype=torch.bfloat16), [], policy)
    assert verdict and verdict.score is None
    assert check([], [], policy)


def test_as_many_proofs_as_chunks(policy, honest):
    for wrong in ([], honest.proofs[:3], [*honest.proofs, honest.proofs[0]]):
        assert _faults(check(honest.activations, wrong, policy)) == {Fault.COUNT}


@pytest.mark.parametrize("garbage", [b"", b"\xff", "no base64!", 17, None, b"\0" * 10**6])
def test_garbage_is_a_verdict_and_no_exception(policy, honest, garbage):
    verdict = check(honest.activations, [garbage, *honest.proofs[1:]], policy)
    assert _faults(verdict) == {Fault.MALFORMED} and verdict.reasons[0].chunk == 0
    assert verdict.score is None


def test_every_chunk_has_as_many_coefficients_as_points(policy, honest):
    short = ProofPoly(honest.proofs[0].coeffs[:-1], 65497)
    long = ProofPoly([*honest.proofs[0].coeffs, 0], 65497)
    for wrong in (short, long, ProofPoly.null(0)):
        assert _faults(check(honest.activations, [wrong, *honest.proofs[1:]], policy)) == {Fault.LENGTH}


def test_coefficients_are_canonical(policy, honest):
    coefficients = honest.proofs[2].coeffs
    coefficients[5] = 65497 + coefficients[5] % 39
    wrong = ProofPoly(coefficients, 65497)
    verdict = check(honest.activations, [*honest.proofs[:2], wrong, honest.proofs[3]], policy)
    assert _faults(verdict) == {Fault.NOT_CANONICAL}


@pytest.mark.parametrize("modulus", [0, 1, 127, 128, HIDDEN, 65496, 65498, 65535])
def test_a_modulus_that_the_prover_chose_is_refused(policy, honest, modulus):
    """H = 576: 32 tokens have fewer elements than the prime, so there is one right modulus."""
    wrong = ProofPoly(honest.proofs[0].coeffs, modulus)
    assert _faults(check(honest.activations, [wrong, *honest.proofs[1:]], policy)) == {Fault.MODULUS}


def test_wide_models_have_an_honest_modulus_within_tolerance():
    """At H = 4096 positions collide modulo the prime in about one proof of ten; honest noise moves a few positions."""
    policy = Policy.published()
    reduced = 0
    for seed in range(60):
        values = torch.randn(32, 4096, generator=torch.Generator().manual_seed(seed))
        (proof,) = toploc.build_proofs(computed(values, 2 * seed), 32, 128, skip_prefill=True)
        reduced += proof.modulus != 65497
        activations = computed(values, 2 * seed + 1)
        assert check(activations, [proof], policy), seed
        for modulus in (4096, 65497 // 2, proof.modulus - 40):
            assert Fault.MODULUS in _faults(check(activations, [ProofPoly(proof.coeffs, modulus)], policy))
    assert reduced


def test_a_null_proof_is_refused(policy, honest):
    assert not check(honest.activations, [ProofPoly.null(128)] * 4, policy)


def test_a_constant_polynomial_is_refused_even_where_its_distances_pass():
    noise = torch.randn(32, 4096, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    forged = ProofPoly([0x405B] + [0] * 127, 65497)
    (result,) = toploc.verify_proofs(noise, [forged], 32, 128, skip_prefill=True)
    assert result.exp_mismatches <= 38 and result.mant_err_mean <= 10 and result.mant_err_median <= 8
    verdict = check(noise, [forged], Policy.published())
    assert {Fault.SIGNS, Fault.REPEATS} <= _faults(verdict)


def test_faults_come_in_the_order_of_the_page():
    noise = torch.randn(32, 4096, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    policy = Policy.published(thresholds=Thresholds(0, 0.0, 0.0), gross=0)
    found = [
        reason.fault for reason in check(noise, [ProofPoly([0x405B] + [0] * 127, 65497)], policy).reasons
    ]
    assert list(dict.fromkeys(found)) == [Fault.SIGNS, Fault.REPEATS, Fault.GROSS, Fault.THRESHOLDS]


def _template(texts, modulus=65497):
    """A polynomial through the positions and values that are usual in other texts."""
    positions, values = {}, {}
    for text in texts:
        (picked,) = pick_chunks(computed(text, 5)[:32], 32, 128, True)
        for index, bits in zip(picked.indices.tolist(), picked.bits.tolist(), strict=True):
            place = index % modulus
            positions[place] = positions.get(place, 0) + 1
            values.setdefault(place, []).append(bits)
    usual = sorted(positions, key=lambda place: -positions[place])[:128]
    return usual, [int(np.median(values[place])) for place in usual]


def test_a_template_of_steady_channels_is_refused(policy, honest):
    x, y = _template([states(seed, 32) for seed in range(3000, 3020)])
    template = ProofPoly.from_points(x, y)
    assert template.modulus == 65497
    verdict = check(honest.activations, [template] * 4, policy)
    assert Fault.SCORE in _faults(verdict)


def test_a_template_modulo_the_width_fits_any_text_and_is_refused(policy, honest):
    """Modulo H a polynomial holds one value per channel, whatever the token."""
    x, y = _template([states(seed, 32) for seed in range(3000, 3020)], HIDDEN)
    filled = dict(zip(x, y, strict=True))
    for channel in range(HIDDEN):
        if len(filled) < 128:
            filled.setdefault(channel, 0x3F80)
    inner = ProofPoly.from_points(list(filled), list(filled.values()))
    forged = ProofPoly(inner.coeffs, HIDDEN)
    assert _faults(check(honest.activations, [forged] * 4, policy)) == {Fault.MODULUS}


def test_proofs_of_another_text_are_refused(policy, honest):
    other = pair(1001)
    assert Fault.SCORE in _faults(check(honest.activations, other.proofs, policy))


def test_one_replayed_chunk_in_a_long_text_is_refused(policy):
    made = pair(4000, 640)
    proofs = [*made.proofs]
    proofs[7] = pair(4001, 640).proofs[7]
    assert not check(made.activations, proofs, policy)
    proofs[7] = made.proofs[6]
    assert not check(made.activations, proofs, policy)


def test_proofs_in_another_order_are_refused(policy, honest):
    assert not check(honest.activations, list(reversed(honest.proofs)), policy)


def test_signs_are_compared(honest):
    verdict = check(-honest.activations, honest.proofs, Policy.published())
    assert _faults(verdict) == {Fault.SIGNS}
    assert verdict.results[0].exp_mismatches < 38


def test_a_small_lasting_shift_is_refused_by_the_score_alone(policy):
    """Half a percent per channel: the published cut-offs see nothing."""
    for seed in range(1000, 1010):
        shifted = pair(seed, shift=0.02)
        assert check(shifted.activations, shifted.proofs, Policy.published())
        assert _faults(check(shifted.activations, shifted.proofs, policy)) == {Fault.SCORE}


def test_a_late_edit_is_refused(policy):
    """The last 8 of 128 tokens were computed after another token than the text has."""
    for seed in range(1000, 1010):
        values = states(seed)
        theirs = values.clone()
        theirs[120:] = states(seed + 7000)[120:] * 0.3 + values[120:] * 0.7
        proofs = toploc.build_proofs(computed(theirs, 1), 32, 128, skip_prefill=True)
        assert not check(computed(values, 2), proofs, policy)


def test_the_verifiers_own_broken_activations_are_its_own_error(policy, honest):
    broken = honest.activations.clone()
    broken[3, 3] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        check(broken, honest.proofs, policy)
    with pytest.raises(TypeError):
        check(honest.activations.double(), honest.proofs, policy)
    with pytest.raises(ValueError, match="widths"):
        check([honest.activations[0], honest.activations[1, :5]], honest.proofs[:1], policy)


def test_a_prover_whose_values_are_not_finite_is_refused(policy, honest):
    theirs = honest.activations.clone()
    theirs[:, 5] = float("nan")
    proofs = toploc.build_proofs(theirs, 32, 128, skip_prefill=True)
    assert not check(honest.activations, proofs, policy)


def test_a_prefill_has_its_own_proof():
    policy = Policy.published(skip_prefill=False)
    prompt, text = states(1, 70), states(2, 40)
    steps = [computed(prompt, 1), *computed(text, 2)]
    proofs = toploc.build_proofs(steps, 32, 128)
    again = [computed(prompt, 3), *computed(text, 4)]
    assert check(again, proofs, policy)
    assert not check([computed(states(3, 70), 3), *again[1:]], proofs, policy)
    assert check([torch.empty(0, HIDDEN, dtype=torch.bfloat16)], [ProofPoly.null(0)], policy)


@given(st.lists(st.binary(max_size=300) | st.text(max_size=20) | st.none(), max_size=6))
@settings(max_examples=200, deadline=None)
def test_any_rubbish_is_refused_without_an_exception(proofs):
    activations = computed(states(5, 64), 1)
    assert not check(activations, proofs, Policy.published())


@given(st.integers(0, 1) | st.integers(4, 257), st.integers(1, 255), st.integers(0, 1))
@settings(max_examples=150, deadline=None)
def test_one_changed_byte_is_refused(place, change, chunk):
    """All but the constant coefficient, which moves all values alike, by as little as one ulp."""
    activations = computed(states(5, 64), 1)
    proofs = toploc.build_proofs_bytes(activations, 32, 128, skip_prefill=True)
    changed = bytearray(proofs[chunk])
    changed[place] ^= change
    proofs[chunk] = bytes(changed)
    assert not check(activations, proofs, Policy.published())
