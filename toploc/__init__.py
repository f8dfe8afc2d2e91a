"""Proofs of inference: 258 bytes per 32 tokens that say which activations a text was generated with.

The names, arguments and bytes of the reference package ``toploc`` 0.1.6 (scheme: arXiv 2501.16007), and beside them
what a stranger's proofs need: ``check`` (strict verification under a ``Policy``).
"""

from toploc.building import build_proofs, build_proofs_base64, build_proofs_bytes
from toploc.calibration import Pair, calibrate
from toploc.checking import check
from toploc.checksum import sha256sum
from toploc.policy import Policy, Rate, Thresholds
from toploc.projection import Projection, build_fingerprints
from toploc.proof import ProofPoly
from toploc.streaming import StreamingBuilder, Suspended
from toploc.verdict import Fault, Reason, Verdict
from toploc.verification import (
    VerificationResult,
    verify_proofs,
    verify_proofs_base64,
    verify_proofs_bytes,
)

__version__ = "0.1.6"

__all__ = [
    "Fault",
    "Pair",
    "Policy",
    "Projection",
    "ProofPoly",
    "Rate",
    "Reason",
    "StreamingBuilder",
    "Suspended",
    "Thresholds",
    "Verdict",
    "VerificationResult",
    "build_fingerprints",
    "build_proofs",
    "build_proofs_base64",
    "build_proofs_bytes",
    "calibrate",
    "check",
    "sha256sum",
    "verify_proofs",
    "verify_proofs_base64",
    "verify_proofs_bytes",
]
