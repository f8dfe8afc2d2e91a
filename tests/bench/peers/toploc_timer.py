"""Runs inside the reference's environment: times it and prints JSON. Imports nothing of this repository."""

import json
import os
import statistics
import sys
import time
from functools import partial

order = json.loads(sys.argv[1])
if order["pinned"]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import torch  # noqa: E402

import toploc  # noqa: E402

if order["pinned"]:
    torch.set_num_threads(1)


def seconds(call, budget=1.0):
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


def built(steps):
    return toploc.build_proofs_bytes(steps, 32, 128, skip_prefill=True)


found = {}
for hidden in order["widths"]:
    chunk = states(32, hidden)
    steps = list(chunk)
    proofs = built(steps)
    if order["pinned"]:
        found[f"build_{hidden}"] = seconds(partial(built, steps))
    verify = partial(toploc.verify_proofs_bytes, chunk, proofs, 32, 128, skip_prefill=True)
    found[f"verify_{hidden}"] = seconds(verify)
if order["pinned"]:
    prompt = [states(2048, 4096)]
    found["prefill"] = seconds(lambda: toploc.build_proofs_bytes(prompt, 32, 128))
print(json.dumps(found))
