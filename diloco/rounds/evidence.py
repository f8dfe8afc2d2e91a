"""Equivocation: statements that one honest member cannot have signed (rule 16).

It is one of these four, and nothing more: two votes in one attempt for different values; a vote left out by a Ready of
a higher attempt of the same process; two Closes or two proposals in one attempt; two signed reduced chunks of one
place. Voting in several attempts of a round is honest, and so is saying the same thing twice.

Evidence carries the statements themselves, so whoever holds it can verify it and needs to believe nobody.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from diloco.rounds.statements import Close, Evidence, Proposal, Ready, Vote
from diloco.rounds.values import value_digest
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from protocol.messages import encode, spec_of

Unseal = Callable[[bytes], Sealed[Any]]
"""Verifies the envelope of a statement of this run, of whatever kind, and decodes it; raises ``NodeError``."""

TWO_VOTES = "two-votes"
LEFT_OUT = "vote-left-out"
TWO_CLOSES = "two-closes"
TWO_PROPOSALS = "two-proposals"
TWO_CHUNKS = "two-chunks"

_PLACE = ("epoch", "round", "attempt")
_CHUNK_PLACE = (*_PLACE, "ownership", "chunk")
_CHUNK = (
    "reduce.header"  # the statement is known by its name: the reduce builds on the rounds, not they on it
)


_DEEDS = {
    TWO_VOTES: "voted for two values",
    LEFT_OUT: "did not report the vote that it had given",
    TWO_CLOSES: "asked for votes on two values",
    TWO_PROPOSALS: "made two proposals",
    TWO_CHUNKS: "signed two versions of one reduced chunk",
}


@dataclass(frozen=True)
class Proof:
    """Verified evidence, and what it shows.

    Attributes:
        evidence: The statements.
        sentence: What they show, in words.
    """

    evidence: Evidence
    sentence: str

    @property
    def accused(self) -> str:
        """Who signed them."""
        return self.evidence.accused


def contradiction(one: Sealed[Any], other: Sealed[Any]) -> Proof | None:
    """What two verified statements prove against their sender; None where an honest member can have signed both."""
    if one.sender != other.sender:
        return None
    kind = _kind(one.message, other.message) or _kind(other.message, one.message)
    if kind is None:
        return None
    evidence = Evidence(kind=kind, accused=one.sender, statements=tuple(sorted((one.raw, other.raw))))
    try:
        encode(evidence)
    except NodeError:  # two long proposals may not fit; then nothing comes of it
        return None
    round_number, attempt = one.message.round, min(one.message.attempt, other.message.attempt)
    sentence = (
        f"{one.sender} {_DEEDS[kind]} in round {round_number}, attempt {attempt}: it is dishonest, or its data "
        "directory runs on two machines or was put back from a copy."
    )
    return Proof(evidence, sentence)


def check(evidence: Evidence, unseal: Unseal) -> Proof:
    """Verify evidence that came from elsewhere.

    Raises:
        NodeError: ``E-WIRE-004`` where it shows nothing, or one of the envelopes'.
    """
    if len(evidence.statements) != 2:
        raise NodeError(Code.WIRE_INVALID, "Evidence does not consist of two statements.")
    one, other = (unseal(statement) for statement in evidence.statements)
    found = contradiction(one, other)
    if found is None or found.evidence != evidence:
        raise NodeError(
            Code.WIRE_INVALID,
            f"The statements shown against {evidence.accused} are no evidence of {evidence.kind!r}.",
        )
    return found


def _kind(one: Any, other: Any) -> str | None:
    """What two statements of one sender show, looked at in this order."""
    if isinstance(one, Vote) and isinstance(other, Ready):
        return LEFT_OUT if _leaves_out(other, one) else None
    name = spec_of(type(one)).name
    if type(one) is not type(other):
        return None
    if name == _CHUNK:
        differs = (one.included, one.digest) != (other.included, other.digest)
        return TWO_CHUNKS if differs and _same(one, other, _CHUNK_PLACE) else None
    if not isinstance(one, Vote | Close | Proposal) or not _same(one, other, _PLACE):
        return None
    if isinstance(one, Proposal):
        return TWO_PROPOSALS if one != other else None
    if one.value == other.value:
        return None
    return TWO_VOTES if isinstance(one, Vote) else TWO_CLOSES


def _same(one: Any, other: Any, place: tuple[str, ...]) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in place)


def _leaves_out(ready: Ready, vote: Vote) -> bool:
    """Whether a Ready of a higher attempt, of the process that voted, does not report that vote or a later one."""
    if not vote.boot or (ready.epoch, ready.round, ready.boot) != (vote.epoch, vote.round, vote.boot):
        return False
    reported = ready.voted_attempt - 1
    if ready.attempt <= vote.attempt or reported > vote.attempt:
        return False
    return reported < vote.attempt or value_digest(ready.voted_value) != vote.value
