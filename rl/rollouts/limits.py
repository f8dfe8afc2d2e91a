"""How much one rollout file may hold."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of a rollout file, checked before anything of that size is allocated.

    Attributes:
        file_bytes: Of the whole file.
        decoded_bytes: Of all columns after decompression, as the file declares them.
        rollouts: Rollouts in the file.
        transcript: Tokens of one rollout.
        tokens: Tokens of all rollouts.
        proof_bytes: Of one proof: 258 for polynomials of 128 points.
    """

    file_bytes: int = 64 << 20
    decoded_bytes: int = 256 << 20
    rollouts: int = 4096
    transcript: int = 1 << 17
    tokens: int = 1 << 22
    proof_bytes: int = 1024


FOOTER_BYTES = 1 << 16
"""Of a file's footer: it describes 11 columns of one row group, and holds the provenance."""
CONTAINER = 1 << 10
"""Entries of any list in the footer."""
PROVENANCE_BYTES = 1 << 14
READER_BYTES = 1 << 30
"""Address space that the process which reads first may use beyond what it has at its start."""
READER_SECONDS = 20.0
"""How long that process may take over one file."""
