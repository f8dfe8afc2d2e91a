"""``python -m toploc.warming``: compile every kernel now, so that the first proof of any later process is quick.

The machine code goes where ``toploc.kernels`` says; whoever runs this must be able to write there.
"""

import time

import torch

from toploc.building import build_proofs
from toploc.verification import verify_proofs


def warm() -> float:
    """Build and verify one proof of each activation type; seconds that it took."""
    begin = time.monotonic()
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        steps = torch.linspace(-4, 4, 33 * 67).reshape(33, 67).to(dtype)
        verify_proofs(steps, build_proofs(steps, 32, 128, skip_prefill=True), 32, 128, skip_prefill=True)
    return time.monotonic() - begin


if __name__ == "__main__":
    print(f"toploc's kernels are ready ({warm():.1f} s)")
