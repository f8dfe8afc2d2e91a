"""The score: how far a sequence deviates from what honest sequences were measured to be."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from toploc.evidence import Differences, statistics
from toploc.policy import Level


def judge(chunks: Sequence[Differences], levels: Sequence[Level]) -> tuple[float, float]:
    """Score of a sequence (above 1: not like honest work), and the false-positive rate at it.

    A sequence of a calibrated length is judged as one run. A longer one is cut into runs of the longest calibrated
    length (the last one ends with the sequence) and has the score of its worst run: a short forgery does not
    vanish in a long text.
    """
    fitting = [level for level in levels if level.chunks <= len(chunks)]
    level = fitting[-1] if fitting else levels[0]
    length = min(level.chunks, len(chunks))
    starts = [*range(0, len(chunks) - length, length), len(chunks) - length]
    limits = np.array(level.limits(len(starts)))
    score = max(float(np.max(deviations(chunks[start : start + length], level) / limits)) for start in starts)
    return score, level.false_positive_rate(score, len(starts))


def deviations(chunks: Sequence[Differences], level: Level) -> npt.NDArray[np.float64]:
    """How far each statistic of one run deviates; far below zero where there was nothing to measure.

    A statistic of fewer points than at calibration (a short text) varies more, by the root of how many times fewer.
    """
    found = statistics(chunks)
    logs = np.log(np.maximum(found.values, 1e-3))
    fewer = np.maximum(np.array(level.points) / np.maximum(found.points, 1), 1.0)
    apart = (logs - np.array(level.centre)) / (np.array(level.scale) * np.sqrt(fewer))
    return np.asarray(np.where(found.points > 0, apart, -99.0), np.float64)
