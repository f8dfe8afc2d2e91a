"""Who is accepted, who refused: every pair judged by a policy that was fitted to other sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.eval.toploc.pairs import SIZE, SPLIT, Pairs, Scheme
from toploc import Pair, Policy, Verdict, check, verify_proofs
from toploc.calibration import evidence, fit, level_of, rate
from toploc.evidence import Differences
from toploc.policy import PUBLISHED, Rate
from toploc.scoring import judge

TARGET = 1e-4
LONGER = (1, 2, 4, 8, 16)  # texts of four chunks judged together, where the tokens needed are counted


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        group: what kind of case it is.
        case: what was done.
        published: sequences that the published cut-offs accept; None for another scheme.
        strict: sequences that ``check`` accepts.
        scores: of each sequence; empty where form alone decided.
        area: under the curve of dishonest against honest scores.
        faults: what was found, and how often.
    """

    group: str
    case: str
    published: Rate | None
    strict: Rate
    scores: tuple[float, ...]
    area: float | None = None
    faults: Mapping[str, int] = field(default_factory=dict)


def halves(kinds: Mapping[str, Pairs], split: int) -> tuple[dict[str, Pairs], dict[str, Pairs]]:
    """Sequences before and from ``split`` on."""
    first = {kind: pairs[:split] for kind, pairs in kinds.items()}
    second = {kind: pairs[split:] for kind, pairs in kinds.items() if len(pairs) > split}
    return first, second


class Jury:
    """Two policies, each fitted to one half of the sequences and judging the other."""

    def __init__(self, scheme: Scheme, honest: Mapping[str, Pairs], dtype: str, split: int = SPLIT) -> None:
        self.scheme = scheme
        self.split = split
        base = Policy("SmolLM2-135M-Instruct", dtype, SIZE, projection=scheme.projection)
        first, second = halves(honest, split)
        self.for_second = fit(first, base, target=TARGET, longest=4)
        self.for_first = fit(second, base, target=TARGET, longest=4)
        self.honest_scores: list[float] = []

    def verdicts(self, pairs: Pairs) -> list[Verdict]:
        """Each pair's verdict; pair ``i`` is sequence ``i``."""
        return [
            check(pair.activations, pair.proofs, self.for_first if number < self.split else self.for_second)
            for number, pair in enumerate(pairs)
        ]

    def row(self, group: str, case: str, pairs: Pairs) -> Row:
        """Judge one case."""
        found = self.verdicts(pairs)
        faults: dict[str, int] = {}
        for verdict in found:
            for fault in {reason.fault.value for reason in verdict.reasons}:
                faults[fault] = faults.get(fault, 0) + 1
        scores = tuple(verdict.score for verdict in found if verdict.score is not None)
        truthful = group == "honest" or case.startswith("honest: ")
        if truthful:
            self.honest_scores.extend(scores)
        published = None
        if self.scheme.projection is None:
            published = rate(
                sum(_published(pair, verdict) for pair, verdict in zip(pairs, found, strict=True)), len(pairs)
            )
        area = _area(scores, self.honest_scores) if len(scores) == len(pairs) and not truthful else None
        return Row(group, case, published, rate(sum(map(bool, found)), len(pairs)), scores, area, faults)


def _published(pair: Pair, verdict: Verdict) -> bool:
    """What the reference does: whatever proofs there are, each against the published cut-offs."""
    limits = PUBLISHED["bfloat16"]
    results = verdict.results
    if not results or len(results) != len(pair.proofs):
        count = min(len(pair.proofs) * SIZE, len(pair.activations))
        results = tuple(verify_proofs(pair.activations[:count], list(pair.proofs), SIZE, 128, True))
    return all(
        result.exp_mismatches <= limits.exp_mismatches
        and result.mant_err_mean <= limits.mant_err_mean
        and result.mant_err_median <= limits.mant_err_median
        for result in results
    )


def _area(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Chance that a dishonest score is above an honest one, ties half."""
    high, low = np.array(positive)[:, None], np.array(negative)[None, :]
    return float((high > low).mean() + 0.5 * (high == low).mean())


def tokens_needed(
    scheme: Scheme, honest: Mapping[str, Pairs], cases: Mapping[str, Pairs], least: float = 0.95
) -> dict[str, int | None]:
    """Tokens until ``least`` of a case's sequences are refused at ``TARGET``; None where all of them do not do.

    Below 128 tokens sequences are cut; above, several texts of one worker are judged as one.
    """
    policy = Policy("", "", SIZE, projection=scheme.projection)
    sequences = [evidence(pair, policy)[0] for pairs in honest.values() for pair in pairs]
    grouped = {case: [evidence(pair, policy)[0] for pair in pairs] for case, pairs in cases.items()}
    needed: dict[str, int | None] = dict.fromkeys(cases)
    for chunks in (1, 2, 3, *(4 * count for count in LONGER)):
        level = level_of(_runs(sequences, chunks), chunks, TARGET)
        for case, found in grouped.items():
            runs = _runs(found, chunks)
            refused = sum(judge(run, [level])[0] > 1 for run in runs)
            if needed[case] is None and refused >= least * len(runs):
                needed[case] = 32 * chunks
    return needed


def _runs(sequences: Sequence[Sequence[Differences]], chunks: int) -> list[list[Differences]]:
    if chunks <= 4:
        return [list(sequence[:chunks]) for sequence in sequences]
    group = chunks // 4
    starts = range(0, len(sequences) - group + 1, group)
    return [
        [chunk for sequence in sequences[start : start + group] for chunk in sequence] for start in starts
    ]
