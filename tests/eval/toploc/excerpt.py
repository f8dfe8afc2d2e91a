"""An excerpt of real hidden states and the policies fitted to other texts, for tests that need no model.

``python -m tests.eval.toploc.excerpt`` writes it to ``tests/toploc/vectors/``.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.eval.toploc.judging import Jury
from tests.eval.toploc.pairs import HONEST, HONEST_BFLOAT16, honest, states
from tests.eval.toploc.report import POLYNOMIAL, schemes

TEXTS, STEPS = 4, 64
VECTORS = Path(__file__).parents[2] / "toploc" / "vectors"


def main() -> None:
    """Write states of prover, verifier and one int8 prover, and a policy per scheme that never saw these texts."""
    kept = {
        "prover": states(HONEST + "decode16-bf16"),
        "verifier": states(HONEST + "prefill8-bf16"),
        "int8_prover": states("states-reprefilled-int8"),
    }
    save_file(
        {name: tensor[:TEXTS, :STEPS].to(torch.bfloat16).contiguous() for name, tensor in kept.items()},
        VECTORS / "smollm2.safetensors",
    )
    for name, scheme in {
        "polynomial": POLYNOMIAL,
        "projection": schemes()["projection, 16 directions"],
    }.items():
        jury = Jury(scheme, honest(scheme, HONEST_BFLOAT16), "bfloat16")
        jury.for_first.save(VECTORS / f"smollm2-{name}.json")


if __name__ == "__main__":
    main()
