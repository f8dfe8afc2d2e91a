"""Learning rates of the three schedules and the warm-up of fresh moments."""

import pytest

from diloco.config import InnerSection
from diloco.worker.schedule import learning_rate

INNER = InnerSection(lr=1.0, warmup_steps=0, final_share=0.2, decay_share=0.5)


def test_wsd_is_stable_then_falls_in_a_line() -> None:
    rates = [learning_rate(INNER, progress, 100) for progress in (0.0, 0.5, 0.75, 1.0, 2.0)]
    assert rates == pytest.approx([1.0, 1.0, 0.6, 0.2, 0.2])


def test_cosine_falls_from_all_to_the_final_share() -> None:
    inner = INNER.model_copy(update={"schedule": "cosine"})
    assert [learning_rate(inner, progress, 9) for progress in (0.0, 0.5, 1.0)] == pytest.approx([1, 0.6, 0.2])


def test_constant_stays() -> None:
    inner = INNER.model_copy(update={"schedule": "constant"})
    assert {learning_rate(inner, progress, 9) for progress in (0.0, 0.5, 1.0)} == {1.0}


def test_the_warm_up_counts_the_optimizers_own_steps_wherever_the_run_is() -> None:
    inner = INNER.model_copy(update={"schedule": "constant", "warmup_steps": 3})
    assert [learning_rate(inner, 0.9, age) for age in (0, 1, 2, 3, 99)] == pytest.approx(
        [0.25, 0.5, 0.75, 1, 1]
    )
