"""Golden vectors: this machine passes, a machine that rounds otherwise does not."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diloco import compiled, golden, outer_step
from diloco.codec import kernels
from protocol.errors import Code, NodeError

ROOT = Path(__file__).parents[2]
ONE_KERNEL = """
from diloco import compiled

@compiled.kernel(compiled.types.float64(compiled.FLOATS))
def first(values):
    return values[0]
"""


def test_this_machine_computes_the_golden_bits() -> None:
    golden.check_golden()
    assert set(golden.computations()) == set(golden.GOLDEN)


def fails_with(name: str) -> None:
    with pytest.raises(NodeError, match=f"other bits for .*{name}") as caught:
        golden.check_golden()
    assert caught.value.code == Code.TRN_GOLDEN
    assert np.__version__ in caught.value.sentence


def test_a_fused_outer_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fused(p, v, g, lr, mu, p_out, v_out) -> None:  # a product kept in fp64 is what a fused operation adds
        v_out[:] = (np.float64(mu) * v + g).astype(np.float32)
        p_out[:] = p - lr * (g + mu * v_out)

    monkeypatch.setattr(outer_step, "_step", fused)
    fails_with("outer-step")


def test_a_fused_accumulation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fused(total, values, weight) -> None:
        total[:] = (total + np.float64(weight) * values).astype(np.float32)

    monkeypatch.setattr(kernels, "accumulate_floats", fused)
    fails_with("fp32-accumulate")


def test_an_encoder_that_rounds_halves_away_from_zero_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = kernels.encode_int8

    def away(values, scales, levels) -> int:
        result = exact(values, scales, levels)
        scaled = values / np.repeat(np.maximum(scales, 1e-30), 256)[: values.size]
        levels[:] = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled)
        return result

    monkeypatch.setattr(kernels, "encode_int8", away)
    fails_with("int8-encode")


def every_kernel() -> list[Callable]:
    from diloco import norm

    modules = (kernels, outer_step, norm)
    return [each for module in modules for each in vars(module).values() if hasattr(each, "inspect_asm")]


def test_no_kernel_contains_a_fused_multiply_add() -> None:
    found = every_kernel()
    assert len(found) >= 10
    for each in found:
        # What came from the cache has no assembly; compile the same function afresh, as `kernel` does.
        fresh = compiled.njit(each.signatures, nogil=True, fastmath=False, error_model="numpy")(each.py_func)
        for assembly in fresh.inspect_asm().values():
            fused = re.findall(r"\bv?f(?:n?m(?:add|sub)|ml[as])\w*", assembly)
            assert not fused, f"{each.__name__} fuses: {fused[:3]}"


def test_without_a_folder_for_the_cache_kernels_are_compiled_at_each_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compile_it = compiled.njit

    def no_folder(signatures, *, cache: bool = False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return compile_it(signatures, **options)

    monkeypatch.setattr(compiled, "njit", no_folder)

    @compiled.kernel(compiled.types.float64(compiled.FLOATS))
    def first(values) -> float:
        return values[0]

    assert first(np.array([2.5], np.float32)) == 2.5


@pytest.mark.parametrize(("suffix", "content"), [("nbi", b""), ("nbc", b"\x80\x05half a file")])
def test_a_damaged_cache_is_passed_over(tmp_path: Path, suffix: str, content: bytes) -> None:
    (tmp_path / "damaged.py").write_text(ONE_KERNEL)
    command = [
        sys.executable,
        "-c",
        "import damaged, numpy; print(damaged.first(numpy.ones(3, numpy.float32)))",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    for _ in range(2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "1.0"
        files = list(tmp_path.glob(f"__pycache__/*.{suffix}"))
        assert files, "the kernel was not cached"
        for file in files:
            file.write_bytes(content)


def test_the_numerics_never_import_torch() -> None:
    script = "import diloco.golden, diloco.outer_state, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
