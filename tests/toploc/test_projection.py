"""The projection scheme: format, honest work, changes, forgeries."""

import contextlib
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toploc.worlds import HIDDEN, computed, states
from toploc import Fault, Pair, Policy, Projection, build_fingerprints, calibrate, check
from toploc.projection import Fingerprint, fingerprint

_PROJECTION = Projection(seed="a run", step_exponent=-5)


def _pair(seed, tokens=128, shift=0.0, projection=_PROJECTION):
    values = states(seed, tokens)
    channels = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(99))
    prover = computed(values * (1 + shift * channels), 2 * seed)
    return Pair(build_fingerprints(prover, 32, projection, skip_prefill=True), computed(values, 2 * seed + 1))


@pytest.fixture(scope="module")
def policy():
    return calibrate({"batch": [_pair(seed) for seed in range(48)]}, model="made up", projection=_PROJECTION)


def _faults(verdict):
    return {reason.fault for reason in verdict.reasons}


def test_a_proof_is_half_a_byte_per_direction_and_token():
    proofs = _pair(1, 70).proofs
    assert [len(proof) for proof in proofs] == [6 + 32 * 8, 6 + 32 * 8, 6 + 6 * 8]


def test_the_same_states_differ_by_less_than_half_a_step():
    values = computed(states(1, 32), 1)
    claim = fingerprint(values, _PROJECTION)
    differences = claim.differences(_PROJECTION.project(values))
    assert np.abs(differences).max() <= 0.5 + 1e-3


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 127), st.integers(-128, 127))
@settings(max_examples=100, deadline=None)
def test_bytes_come_back(seed, rows, half, exponent):
    residues = np.random.default_rng(seed).integers(0, 16, (rows, 2 * half)).astype(np.uint8)
    claim = Fingerprint(exponent, residues)
    again = Fingerprint.from_bytes(claim.to_bytes())
    assert again.step_exponent == exponent and (again.residues == residues).all()


def test_a_view_of_bytes_is_read_as_its_bytes():
    data = Fingerprint(0, np.zeros((2, 4), np.uint8)).to_bytes()
    wide = np.frombuffer(data, np.uint16)
    assert Fingerprint.from_bytes(memoryview(wide)).residues.shape == (2, 4)
    assert Fingerprint.from_bytes(memoryview(wide.reshape(1, -1))).residues.shape == (2, 4)


@given(st.binary(max_size=300))
@settings(max_examples=500, deadline=None)
def test_any_bytes_decode_to_themselves_or_are_refused(data):
    with contextlib.suppress(ValueError):
        assert Fingerprint.from_bytes(data).to_bytes() == data


def test_directions_depend_on_the_seed_alone():
    values = states(1, 4)
    first = _PROJECTION.project(values)
    assert np.allclose(Projection(seed="a run", step_exponent=-5).project(values), first)
    assert not np.allclose(Projection(seed="another", step_exponent=-5).project(values), first)
    # Pinned: provers and verifiers of different versions must agree.
    bits = np.sign(Projection("pinned", 2, 0).project(torch.eye(8)))
    assert bits.astype(int).tolist() == PINNED


PINNED = [[1, 1], [-1, 1], [1, 1], [1, 1], [1, 1], [1, 1], [-1, 1], [-1, -1]]


def test_honest_work_of_any_length_is_accepted(policy):
    for tokens in (1, 2, 31, 32, 33, 100, 128, 129, 300):
        for seed in range(1000, 1008):
            made = _pair(seed, tokens)
            assert check(made.activations, made.proofs, policy), tokens


def test_a_small_lasting_shift_is_refused(policy):
    for seed in range(1000, 1010):
        made = _pair(seed, shift=0.03)
        assert _faults(check(made.activations, made.proofs, policy)) == {Fault.SCORE}


def test_forgeries_are_refused(policy):
    own, other = _pair(1000), _pair(1001)
    constant = [Fingerprint(-5, np.zeros((32, 16), np.uint8)).to_bytes()] * 4
    for forged in (other.proofs, constant, list(reversed(own.proofs))):
        assert _faults(check(own.activations, forged, policy)) == {Fault.SCORE}
    assert _faults(check(own.activations, own.proofs[:3], policy)) == {Fault.COUNT}


def test_a_proof_of_another_form_is_refused(policy):
    own = _pair(1000)
    coarse = _pair(1000, projection=dataclasses.replace(_PROJECTION, step_exponent=0))
    narrow = _pair(1000, projection=dataclasses.replace(_PROJECTION, dimensions=8))
    for wrong in (coarse, narrow):
        assert _faults(check(own.activations, wrong.proofs, policy)) == {Fault.LENGTH}
    for garbage in (b"", b"\x01", "text", None, own.proofs[0] + b"\0", b"\x02" + own.proofs[0][1:]):
        assert _faults(check(own.activations, [garbage, *own.proofs[1:]], policy)) == {Fault.MALFORMED}


def test_what_is_not_finite_proves_nothing(policy):
    own = _pair(1000)
    broken = own.activations.clone()
    broken[:, 3] = float("inf")
    proofs = build_fingerprints(broken, 32, _PROJECTION, skip_prefill=True)
    assert not check(own.activations, proofs, policy)
    with pytest.raises(ValueError, match="NaN"):
        check(broken, own.proofs, policy)


def test_the_step_fits_the_honest_difference():
    pairs = [(computed(states(seed), 1), computed(states(seed), 2)) for seed in range(4)]
    fitted = Projection.fitting(pairs)
    differences = [float((ours.float() - theirs.float()).square().mean()) for ours, theirs in pairs]
    assert 0.7 < 2.0**fitted.step_exponent / np.sqrt(np.mean(differences)) < 1.42
    with pytest.raises(ValueError, match="no step"):
        Projection.fitting([(pairs[0][0], pairs[0][0])])


def test_a_policy_of_this_scheme_survives_its_file(policy):
    assert Policy.from_json(policy.to_json()) == policy


@pytest.mark.parametrize("dimensions, exponent", [(0, 0), (3, 0), (256, 0), (2, 128), (2, -129)])
def test_what_a_proof_cannot_say_is_refused(dimensions, exponent):
    with pytest.raises(ValueError):
        Projection("", dimensions, exponent)


def test_a_list_of_steps_gives_the_proofs_of_the_tensor():
    values = computed(states(1, 70), 1)
    whole = build_fingerprints(values, 32, _PROJECTION, skip_prefill=True)
    assert build_fingerprints(list(values), 32, _PROJECTION, skip_prefill=True) == whole
    with pytest.raises(TypeError):
        build_fingerprints(values.double(), 32, _PROJECTION)
    with pytest.raises(ValueError, match="rows"):
        build_fingerprints([torch.zeros(70_000, 2, dtype=torch.bfloat16)], 32, _PROJECTION)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4), (3, 0)])
def test_activations_without_rows_of_channels_are_refused(shape):
    with pytest.raises(ValueError):
        build_fingerprints(torch.zeros(shape), 32, _PROJECTION, skip_prefill=True)


@pytest.mark.parametrize("shape", [(), (0,)])
def test_steps_without_channels_are_refused(shape):
    with pytest.raises(ValueError, match="channels"):
        build_fingerprints([torch.zeros(shape)], 32, _PROJECTION)
