"""The score: how far a sequence deviates from what honest sequences were measured to be."""

from collections.abc import Sequence

import numpy as np

from toploc.evidence import Differences, statistics
from toploc.policy import Level


def judge(chunks: Sequence[Differences], levels: Sequence[Level]) -> tuple[float, float, float]:
    """Score of a sequence, the limit that holds for it, and the false-positive rate at the score.

    A sequence of a calibrated length is judged as one run. A longer one is cut into runs of the longest calibrated
    length (the last one ends with the sequence) and has the score of its worst run: a short forgery does not
    vanish in a long text. Each run is a chance to err, so limits rise as the rates of all runs add up.
    """
    fitting = [level for level in levels if level.chunks <= len(chunks)]
    level = fitting[-1] if fitting else levels[0]
    length = min(level.chunks, len(chunks))
    starts = [*range(0, len(chunks) - length, length), len(chunks) - length]
    score = max(deviation(chunks[start : start + length], level) for start in starts)
    limit = level.limit_of(len(starts))
    rate = min(1.0, len(starts) * level.false_positive_rate(score))
    return score, limit, rate


def deviation(chunks: Sequence[Differences], level: Level) -> float:
    """Score of one run: the largest deviation of its statistics.

    A statistic of fewer points than at calibration (a short text) varies more, by the root of how many times fewer.
    """
    found = statistics(chunks)
    measured = found.points > 0
    logs = np.log(np.maximum(found.values, 1e-3))
    fewer = np.maximum(np.array(level.points) / np.maximum(found.points, 1), 1.0)
    deviations = (logs - np.array(level.centre)) / (np.array(level.scale) * np.sqrt(fewer))
    return float(np.max(deviations, where=measured, initial=-99.0))
