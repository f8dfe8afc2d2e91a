"""Building and verifying proofs, against the reference package in the same run; memory; time to the first proof."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import toploc
from tests.bench.measurement import Measurement
from tests.bench.peers.toploc_reference import time_reference

WIDTHS = (896, 2048, 4096, 8192)
_ROOT = Path(__file__).parents[2]
_FIRST_PROOF = """
import time, torch
start = time.process_time()
import toploc
toploc.build_proofs(torch.ones(32, 896, dtype=torch.bfloat16), 32, 128, skip_prefill=True)
print(time.process_time() - start)
"""
_SEQUENCES = 200


def run() -> Measurement:
    """Measure; one thread on each side, except where the reference is faster with more."""
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    ratios: dict[str, float] = {}
    pinned = time_reference(WIDTHS, pinned=True)
    free = time_reference(WIDTHS, pinned=False)
    for hidden in WIDTHS:
        chunk = _states(32, hidden)
        steps = list(chunk)
        proofs = toploc.build_proofs_bytes(steps, 32, 128, skip_prefill=True)
        build = typical(partial(toploc.build_proofs_bytes, steps, 32, 128, skip_prefill=True))
        verify = typical(partial(toploc.verify_proofs_bytes, chunk, proofs, 32, 128, skip_prefill=True))
        reference = min(pinned[f"verify_{hidden}"], free[f"verify_{hidden}"])
        figures |= {f"build_h{hidden}_us": 1e6 * build, f"verify_h{hidden}_us": 1e6 * verify}
        peers |= {
            f"reference_build_h{hidden}_us": 1e6 * pinned[f"build_{hidden}"],
            f"reference_verify_h{hidden}_us": 1e6 * reference,
        }
        ratios |= {
            f"build_h{hidden}_vs_reference": pinned[f"build_{hidden}"] / build,
            f"verify_h{hidden}_vs_reference": reference / verify,
        }
    prompt = [_states(2048, 4096)]
    prefill = typical(partial(toploc.build_proofs_bytes, prompt, 32, 128))
    figures["prefill_2048x4096_ms"] = 1e3 * prefill
    peers["reference_prefill_2048x4096_ms"] = 1e3 * pinned["prefill"]
    ratios["prefill_vs_reference"] = pinned["prefill"] / prefill
    figures["extra_memory_of_a_16_mib_chunk_kib"] = _peak_kib(
        lambda: toploc.build_proofs_bytes(prompt, 32, 128)
    )
    figures["memory_per_sequence_beside_window_kib"] = _per_sequence_kib()
    with tempfile.TemporaryDirectory() as folder:
        # A copy without anything compiled, and a cache folder that is empty.
        shutil.copytree(
            _ROOT / "toploc", Path(folder) / "toploc", ignore=shutil.ignore_patterns("__pycache__")
        )
        figures["cold_first_proof_s"] = _first_proof(Path(folder), {"NUMBA_CACHE_DIR": f"{folder}/cache"})
    figures["warm_first_proof_s"] = min(_first_proof(_ROOT, {}) for _ in range(3))
    return Measurement(figures, peers, ratios)


def typical(call: Callable[[], object], budget: float = 1.0) -> float:
    """Median seconds of single calls, as many as fit ``budget`` seconds.

    A call takes microseconds and a busy machine interrupts for milliseconds: timed one by one, most calls are whole.
    """
    call()
    times = []
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _states(rows: int, hidden: int) -> torch.Tensor:
    return torch.randn(rows, hidden, generator=torch.Generator().manual_seed(hidden)).to(torch.bfloat16)


def _status_kib(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def _peak_kib(call: object) -> float:
    """How far resident memory rises above its level at the start, while ``call`` runs."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status_kib("VmRSS")
    call()  # type: ignore[operator]
    return max(0, _status_kib("VmHWM") - before)


def _per_sequence_kib() -> float:
    """Resident memory of a sequence in flight in the streaming builder, less its window of 32 x 4096."""
    rows = _states(16, 4096)
    with toploc.StreamingBuilder() as builder:
        builder.add("warm", _states(32, 4096))
        builder.finish("warm")
        before = _status_kib("VmRSS")
        for number in range(_SEQUENCES):
            builder.add(number, _states(32, 4096))
            builder.add(number, rows)
        # Windows are touched up to the rows that were written, or whole where a window was used before.
        held = (
            sum(32 * 4096 * 2 if entry.window is not None else 0 for entry in builder._sequences.values())
            / 1024
        )
        after = _status_kib("VmRSS")
        return max(0.0, (after - before - held) / _SEQUENCES)


def _first_proof(folder: Path, environment: dict[str, str]) -> float:
    """Processor seconds from ``import toploc`` to the first proof in a new process with torch; ``folder`` has ours."""
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_PROOF],
        cwd=folder,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": "",
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)
