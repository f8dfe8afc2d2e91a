"""Learning rate of an inner step."""

import math

from diloco.config import InnerSection


def learning_rate(inner: InnerSection, progress: float, age: int) -> float:
    """The rate of one step.

    Args:
        inner: The run's inner section.
        progress: How much of the run has passed at this step, 0 to 1, the same for all members; beyond 1 it
            stays at the end's rate.
        age: Steps that this optimizer has taken so far. The warm-up counts these, so that fresh moments of a late
            joiner or a restarted worker are not used at full rate.
    """
    progress = min(max(progress, 0.0), 1.0)
    warm = min(1.0, (age + 1) / (inner.warmup_steps + 1))
    if inner.schedule == "constant":
        share = 1.0
    elif inner.schedule == "cosine":
        share = inner.final_share + (1 - inner.final_share) * 0.5 * (1 + math.cos(math.pi * progress))
    else:
        fallen = max(0.0, progress - (1 - inner.decay_share)) / inner.decay_share
        share = 1 - (1 - inner.final_share) * fallen
    return inner.lr * share * warm
