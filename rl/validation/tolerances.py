"""How far an honest worker's numbers may lie from a validator's: their computations differ in order and hardware."""

from dataclasses import dataclass
from typing import Literal, Self

from toploc import Policy
from toploc.policy import Thresholds


@dataclass(frozen=True)
class Tolerances:
    """Bounds of an audit.

    Attributes:
        proofs: For TOPLOC.
        logit: Largest honest difference of one logit.
        mean_logprob: Largest honest mean difference of a rollout's log-probabilities, either way, at temperature 1.
        near_ties: Share of tokens that may be a near tie instead of the choice; a few more in any case.
    """

    proofs: Policy
    logit: float
    mean_logprob: float
    near_ties: float

    @classmethod
    def of(cls, dtype: Literal["float32", "bfloat16"]) -> Self:
        """For models that were never calibrated, by what all of a run's workers compute in.

        float32 on both sides agrees to the fifth digit, so a proof's bfloat16 values agree but for roundings at a
        border.
        """
        if dtype == "float32":
            proofs = Policy(model="any", dtype=dtype, thresholds=Thresholds(8, 1.0, 1))
            return cls(proofs, logit=2e-3, mean_logprob=2e-4, near_ties=0.005)
        return cls(Policy.published(dtype), logit=0.25, mean_logprob=0.03, near_ties=0.05)


FEW = 2
"""Near ties that any file may have."""
