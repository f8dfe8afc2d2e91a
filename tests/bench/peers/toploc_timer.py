"""Runs inside the reference's environment: times what each line of its input names. Imports nothing of this repository.

A line is JSON: what (``build``, ``verify``, ``prefill``), width, seconds; the answer is the median seconds of a call.
"""

import json
import os
import statistics
import sys
import time

pinned = sys.argv[1:] == ["pinned"]
if pinned:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import torch  # noqa: E402

import toploc  # noqa: E402

if pinned:
    torch.set_num_threads(1)


def seconds(call, budget):
    """As tests.bench.toploc_proofs.typical."""
    call()
    times = []
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def states(rows, hidden):
    return torch.randn(rows, hidden, generator=torch.Generator().manual_seed(hidden)).to(torch.bfloat16)


def call_of(what, hidden):
    if what == "prefill":
        prompt = [states(2048, hidden)]
        return lambda: toploc.build_proofs_bytes(prompt, 32, 128)
    chunk = states(32, hidden)
    steps = list(chunk)

    def build():
        return toploc.build_proofs_bytes(steps, 32, 128, skip_prefill=True)

    if what == "build":
        return build
    proofs = build()
    return lambda: toploc.verify_proofs_bytes(chunk, proofs, 32, 128, skip_prefill=True)


for line in sys.stdin:
    what, hidden, budget = json.loads(line)
    print(json.dumps(seconds(call_of(what, hidden), budget)), flush=True)
