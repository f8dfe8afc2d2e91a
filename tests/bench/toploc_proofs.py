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
from tests.bench.peers.toploc_reference import Reference

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
_TURNS = 11


def run() -> Measurement:
    """Measure; one thread on each side, except where the reference is faster with more."""
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    ratios: dict[str, float] = {}
    prompt = [_states(2048, 4096)]
    with Reference(pinned=True) as pinned, Reference(pinned=False) as free:

        def side_by_side(
            name: str, ours: Callable[[], object], what: str, hidden: int, *peers_: Reference
        ) -> None:
            """Time ours and the reference in turn; the ratio is the median of the turns' ratios."""
            turns = [
                (typical(ours, 0.1), *(peer.seconds(what, hidden, 0.1) for peer in peers_))
                for _ in range(_TURNS)
            ]
            typically = [statistics.median(times) for times in zip(*turns, strict=True)]
            best = 1 + typically[1:].index(min(typically[1:]))
            figures[f"{name}_us"] = 1e6 * typically[0]
            peers[f"reference_{name}_us"] = 1e6 * typically[best]
            ratios[f"{name}_vs_reference"] = statistics.median(times[best] / times[0] for times in turns)

        for hidden in WIDTHS:
            chunk = _states(32, hidden)
            steps = list(chunk)
            build = partial(toploc.build_proofs_bytes, steps, 32, 128, skip_prefill=True)
            verify = partial(toploc.verify_proofs_bytes, chunk, build(), 32, 128, skip_prefill=True)
            side_by_side(f"build_h{hidden}", build, "build", hidden, pinned)
            side_by_side(f"verify_h{hidden}", verify, "verify", hidden, pinned, free)
        whole = partial(toploc.build_proofs_bytes, prompt, 32, 128)
        side_by_side("prefill", whole, "prefill", 4096, pinned)
    figures["extra_memory_of_a_16_mib_chunk_kib"] = _peak_kib(whole)
    figures["memory_per_sequence_beside_window_kib"] = _per_sequence_kib()
    with tempfile.TemporaryDirectory() as folder:
        # A copy without anything compiled, and a cache folder that is empty.
        shutil.copytree(
            _ROOT / "toploc", Path(folder) / "toploc", ignore=shutil.ignore_patterns("__pycache__")
        )
        figures["cold_first_proof_s"] = _first_proof(Path(folder), {"NUMBA_CACHE_DIR": f"{folder}/cache"})
    figures["warm_first_proof_s"] = min(_first_proof(_ROOT, {}) for _ in range(3))
    return Measurement(figures, peers, ratios)


def typical(call: Callable[[], object], budget: float) -> float:
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
