"""Inputs at which the reference crashes, misbehaves or is silent: here a result or a clear error."""

import contextlib
import copy
import hashlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import toploc
from toploc import ProofPoly, VerificationResult, kernels

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def steps():
    return torch.randn(64, 128, generator=torch.Generator().manual_seed(1)).bfloat16()


@pytest.mark.failure_mode(46)
def test_no_decode_step_is_an_empty_proof_and_no_exception(steps):
    """One output token leaves nothing to prove but the prefill."""
    assert toploc.build_proofs([], 32, 128) == []
    assert toploc.build_proofs([], 32, 128, skip_prefill=True) == []
    assert len(toploc.build_proofs([steps], 32, 128)) == 1
    assert toploc.verify_proofs([], [], 32, 128) == []
    assert toploc.build_proofs_bytes(steps[:0], 32, 128, skip_prefill=True) == []
    assert toploc.build_proofs([steps[:0]], 32, 128) == [ProofPoly.null(0)]


@pytest.mark.failure_mode(46)
def test_48_and_48_steps_give_the_proofs_of_96():
    steps = torch.randn(96, 128, generator=torch.Generator().manual_seed(2)).bfloat16()
    whole = toploc.build_proofs(steps, 32, 128, skip_prefill=True)
    assert toploc.build_proofs([*steps[:48], *steps[48:]], 32, 128, skip_prefill=True) == whole


def test_a_null_proof_matches_nothing(steps):
    for null in (ProofPoly.null(128), ProofPoly.null(0), ProofPoly.from_bytes(b"\0\0")):
        (result,) = toploc.verify_proofs(steps[:32], [null], 32, 128, skip_prefill=True)
        assert result == VerificationResult(128, 2.0**64, 2.0**64)


def test_as_many_proofs_as_chunks_or_an_error(steps):
    proofs = toploc.build_proofs(steps, 32, 128, skip_prefill=True)
    for wrong in ([], proofs[:1], [*proofs, proofs[0]]):
        with pytest.raises(ValueError, match="proofs for 2 chunks"):
            toploc.verify_proofs(steps, wrong, 32, 128, skip_prefill=True)


@pytest.mark.parametrize("size, topk", [(0, 128), (-1, 128), (32, 0), (32, -5)])
def test_sizes_below_one_are_refused(steps, size, topk):
    with pytest.raises(ValueError, match="at least 1"):
        toploc.build_proofs(steps, size, topk)


def test_other_types_are_refused_by_name(steps):
    for wrong in (steps.double(), steps.int(), torch.zeros(4, 4, dtype=torch.complex64)):
        with pytest.raises(TypeError, match="bfloat16"):
            toploc.build_proofs(wrong, 32, 128)
    with pytest.raises(TypeError, match="one type"):
        toploc.build_proofs([*steps[:3], steps[4].float()], 32, 128, skip_prefill=True)
    with pytest.raises(TypeError):
        toploc.build_proofs(torch.tensor(1.0), 32, 128)
    for wrong in (steps.to_sparse(), steps.to("meta")):
        for activations in (wrong, [steps[0], wrong]):
            with pytest.raises(TypeError, match="dense"):
                toploc.build_proofs(activations, 32, 128, skip_prefill=True)
    for wrong in ([1, 2], [steps[0], None], None):
        with pytest.raises(TypeError):
            toploc.check(wrong, [b""], toploc.Policy.published())


@pytest.mark.parametrize(
    "x, y",
    [
        ([1, 2], [1]),
        ([-1, 2], [1, 2]),
        ([1, 1], [1, 2]),
        ([1, 2], [1, 65536]),
        ([1, 2], [-1, 2]),
        ([1.5], [1]),
    ],
)
def test_points_that_make_no_proof_are_refused(x, y):
    with pytest.raises(ValueError):
        ProofPoly.from_points(x, y)


@pytest.mark.parametrize(
    ("coeffs", "modulus"),
    [
        ([1.5], 3),
        (["5"], 3),
        ([True], 3),
        ([2**70], 3),
        ([-1], 3),
        ([65536], 3),
        ([[1, 2]], 3),
        ([1], 3.5),
        ([1], -1),
    ],
)
def test_numbers_that_make_no_proof_are_refused(coeffs, modulus):
    with pytest.raises(ValueError):
        ProofPoly(coeffs, modulus)


@pytest.mark.parametrize("length", [-1, 65_498, 10**9])
def test_a_null_proof_is_as_long_as_a_proof_may_be(length):
    with pytest.raises(ValueError, match="65497"):
        ProofPoly.null(length)


def test_no_points_are_the_polynomial_of_no_coefficient():
    assert ProofPoly.from_points([], []).to_bytes() == b"\xff\xd9"


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xd9\x01", b"\0" * 130_998])
def test_bytes_that_are_no_proof_are_refused(data):
    with pytest.raises(ValueError, match="even number"):
        ProofPoly.from_bytes(data)


@pytest.mark.parametrize(
    "text", ["", "/9k", "/9k=\n", "*9k=", "/9l=", "é9k=", "/9kA", "=" * 8, "A" * 300_000]
)
def test_text_that_is_no_proof_is_refused(text):
    with pytest.raises(ValueError):
        ProofPoly.from_base64(text)


def test_bytes_and_text_are_not_confused():
    with pytest.raises(TypeError):
        ProofPoly.from_bytes("/9k=")
    with pytest.raises(TypeError):
        ProofPoly.from_base64(b"/9k=")


@given(st.binary(max_size=600))
@settings(max_examples=500, deadline=None)
def test_any_bytes_decode_to_themselves_or_are_refused(data):
    try:
        proof = ProofPoly.from_bytes(data)
    except ValueError:
        assert len(data) < 2 or len(data) % 2
        return
    assert proof.to_bytes() == data
    assert ProofPoly.from_base64(proof.to_base64()) == proof
    assert ProofPoly(proof.coeffs, proof.modulus) == proof
    activations = torch.ones(4, 8, dtype=torch.bfloat16)
    (result,) = toploc.verify_proofs(activations, [proof], 4, 8, skip_prefill=True)
    assert 0 <= result.exp_mismatches <= 8


@given(st.text(max_size=600))
@settings(max_examples=500, deadline=None)
def test_any_text_decodes_to_itself_or_is_refused(text):
    with contextlib.suppress(ValueError):
        assert ProofPoly.from_base64(text).to_base64() == text


def test_proofs_are_values(steps):
    first, second = toploc.build_proofs(steps, 32, 128, skip_prefill=True)
    assert first != second and first == copy.deepcopy(first) and len({first, second, copy.copy(first)}) == 2
    assert first != "something else"
    assert repr(ProofPoly([1, 2], 3)) == "ProofPoly[3]([1, 2])"
    with pytest.raises(AttributeError):
        first.modulus = 5
    text = "VerificationResult[exp_mismatches=3, mant_err_mean=1.84467e+19, mant_err_median=2.5]"
    assert repr(VerificationResult(3, 2.0**64, 2.5)) == text


def test_a_file_has_its_checksum(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"abc" * 50_000)
    assert toploc.sha256sum(str(file), chunk_size=1000) == hashlib.sha256(b"abc" * 50_000).hexdigest()
    with pytest.raises(ValueError, match="at least 1"):
        toploc.sha256sum(str(file), chunk_size=0)


def test_who_cannot_write_beside_the_source_begins_with_what_its_owner_compiled(tmp_path, monkeypatch):
    beside, mine = tmp_path / "toploc" / "__pycache__", tmp_path / "mine"
    beside.mkdir(parents=True)
    mine.mkdir()
    for name in ("field.f-1.py311.nbi", "field.f-1.py311.1.nbc", "field.g-9.py311.nbi"):
        (beside / name).write_bytes(name.encode())
    monkeypatch.setattr(kernels, "__file__", str(tmp_path / "toploc" / "kernels.py"))
    kernels._inherit(mine, "field.f-1.py311")
    assert sorted(file.name for file in mine.iterdir()) == ["field.f-1.py311.1.nbc", "field.f-1.py311.nbi"]
    (mine / "field.f-1.py311.nbi").write_bytes(b"newer")
    kernels._inherit(mine, "field.f-1.py311")
    assert (mine / "field.f-1.py311.nbi").read_bytes() == b"newer"
    kernels._inherit(mine, "field.missing-1.py311")


def test_the_package_needs_nothing_but_torch_numpy_numba_and_the_standard_library():
    """Imported, and a proof built and verified, where an import hook refuses everything else.

    What torch and numba themselves try to import is their affair: the hook looks at who asks.
    """
    code = """
        import builtins, sys
        plain = builtins.__import__
        allowed = {"torch", "numpy", "numba", "toploc"} | set(sys.stdlib_module_names)
        def guarded(name, globals=None, locals=None, fromlist=(), level=0):
            asker = (globals or {}).get("__name__", "")
            if asker.split(".")[0] in ("toploc", "__main__") and level == 0:
                if name.split(".")[0] not in allowed:
                    raise ImportError(f"{asker} imports {name}")
            return plain(name, globals, locals, fromlist, level)
        builtins.__import__ = guarded
        import pkgutil, importlib, toploc, torch
        for module in pkgutil.iter_modules(toploc.__path__):
            importlib.import_module(f"toploc.{module.name}")
        steps = torch.ones(32, 64, dtype=torch.bfloat16)
        proofs = toploc.build_proofs_bytes(steps, 32, 128, skip_prefill=True)
        print(toploc.verify_proofs_bytes(steps, proofs, 32, 128, skip_prefill=True)[0].exp_mismatches)
        others = {"protocol", "diloco", "shardcast", "node", "rl"} & {name.split(".")[0] for name in sys.modules}
        assert not others, others
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr
