"""What strict verification says."""

from dataclasses import dataclass
from enum import StrEnum

from toploc.verification import VerificationResult


class Fault(StrEnum):
    """Why proofs are refused."""

    COUNT = "count"
    MALFORMED = "malformed"
    LENGTH = "length"
    NOT_CANONICAL = "not-canonical"
    MODULUS = "modulus"
    SIGNS = "signs"
    REPEATS = "repeats"
    GROSS = "gross"
    THRESHOLDS = "thresholds"
    SCORE = "score"


@dataclass(frozen=True, slots=True)
class Reason:
    """One fault: of one chunk, or of the whole (``chunk`` is None)."""

    fault: Fault
    chunk: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ``toploc.check`` found.

    Attributes:
        accepted: no fault was found.
        reasons: every fault found.
        score: the largest deviation from the honest distribution as a share of its limit (see
            ``toploc.policy.Level``), so above 1 is refused; None without a calibrated policy, and where the proofs'
            form forbids comparing.
        false_positive_rate: share of honest work of this length expected to score at least as high; None with it.
        results: the reference package's three numbers per chunk, where they could be taken.
    """

    accepted: bool
    reasons: tuple[Reason, ...]
    score: float | None
    false_positive_rate: float | None
    results: tuple[VerificationResult, ...]

    def __bool__(self) -> bool:
        """Whether the proofs are accepted."""
        return self.accepted
