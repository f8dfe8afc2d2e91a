"""What a validator says of a file: a code, a sentence, evidence. Pure.

What several validators say of one file is taken together by the orchestrator (``rl/orchestration/judging.py``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from protocol.errors import Code
from protocol.units import Digest, PeerId

MOST_FINDINGS = 8
"""Kept in a verdict; one is enough to refuse."""


class Outcome(StrEnum):
    """What becomes of a file."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNDECIDED = "undecided"
    """The validator could not judge it. Another one is asked, and the worker is not blamed."""


BAN = 1000
"""Strikes that end a worker's part in the run at once."""

STRIKES: Mapping[Code, int] = {
    Code.RL_WINDOW: 0,
    Code.RL_UNJUDGED: 0,
    Code.RL_COPY: BAN,
    Code.RL_REWARD: BAN,
    Code.RL_IMPLAUSIBLE: BAN,
    Code.RL_PROOF: BAN,
    Code.RL_OTHER_LOGPROBS: BAN,
    Code.RL_OTHER_TOKENS: BAN,
}
"""How much a finding counts against a worker: lateness is nobody's lie, and what is broken (1, every other code) may be
an accident; what a correct worker cannot produce is not."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        code: Its kind.
        sentence: What was found, with numbers.
        position: Whose rollout, or None for the file.
        index: Which rollout of the group, or None for the group.
        evidence: The numbers by name, so that another can compare its own.
    """

    code: Code
    sentence: str
    position: int | None = None
    index: int | None = None
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Evidence travels as JSON, which has no NaN and no infinity."""
        for name, value in self.evidence.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"evidence {name} is {value}")


@dataclass(frozen=True)
class Verdict:
    """One validator's word on one file.

    Attributes:
        file: Digest of the file's bytes.
        worker: Who made it.
        trainer: Who leased the work.
        counter: The lease's number.
        validator: Who says this.
        outcome: What should become of the file.
        findings: What is wrong, the gravest first, at most ``MOST_FINDINGS``; empty where it is accepted.
        doubts: What is unusual and proves nothing: the worker's next files are all audited.
        rollouts: How many the file holds.
        audited: For how many of them the model was run.
    """

    file: Digest
    worker: PeerId
    trainer: PeerId
    counter: int
    validator: PeerId
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    doubts: tuple[Finding, ...] = ()
    rollouts: int = 0
    audited: int = 0

    @property
    def code(self) -> Code | None:
        """The gravest finding's code."""
        return self.findings[0].code if self.findings else None

    @property
    def sentence(self) -> str:
        """What a person is told."""
        if not self.findings:
            return f"{self.rollouts} rollouts, {self.audited} of them audited: nothing is wrong."
        first, more = self.findings[0], len(self.findings) - 1
        return first.sentence + (f" ({more} more)" if more else "")

    @property
    def strikes(self) -> int:
        """How much this counts against the worker."""
        if self.outcome is not Outcome.REFUSED:
            return 0
        return max(STRIKES.get(finding.code, 1) for finding in self.findings)


def gravest_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """At most ``MOST_FINDINGS`` of some findings: first of each code one, by strikes, then the rest."""
    firsts: dict[Code, Finding] = {}
    for finding in findings:
        firsts.setdefault(finding.code, finding)
    heads = sorted(firsts.values(), key=lambda finding: -STRIKES.get(finding.code, 1))
    rest = [finding for finding in findings if firsts[finding.code] is not finding]
    return (*heads, *rest)[:MOST_FINDINGS]
