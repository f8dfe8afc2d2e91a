"""The time line of a round, from what its members say."""

from dataclasses import replace

from node.coordinator.facts import Reported
from node.coordinator.folds.agreement import compare
from node.coordinator.folds.making import Next, whole
from node.coordinator.view import Member, Round

_MARKS = {
    "train.begin": "compute",
    "train.end": "computed",
    "contribution.frozen": "encoded",
    "ready.sent": "ready",
    "reduce.begin": "reduce",
    "reduce.end": "reduced",
    "vote": "voted",
    "commit": "committed",
    "apply": "applied",
}
_EARLY = 3
"""Events of so many rounds after the last decided one are taken: a member may know of a decision earlier."""

AFTER = ("apply", "bytes")
"""Kinds whose ``round`` is the one that begins with it, so they belong to the one before."""

BELIEVED = 30.0
"""Up to so many seconds between an event and its arrival are taken for delay, not for a wrong clock."""


def in_round(following: Next, fact: Reported, number: int, before: Member) -> None:
    """What an event adds to the time line of its round, where that is still in the view."""
    tip = following.view.tip.round
    entry = following.view.rounds.get(str(number))
    if entry is None and tip < number <= tip + _EARLY:
        entry = Round(number)
    if entry is None:
        return
    peer, at = fact.peer, _at(fact)
    old = entry
    if (mark := _MARKS.get(fact.kind)) is not None:
        marks = dict(entry.marks)
        marks[peer] = {**marks.get(peer, {}), mark: at}
        entry = replace(entry, marks=marks)
    if fact.kind in ("ready.sent", "reduce.begin"):
        attempts = max(entry.attempts, whole(fact.fields.get("attempt"), 0) + 1)
        entry = entry if attempts == entry.attempts else replace(entry, attempts=min(attempts, 10_000))
    if fact.kind == "train.end":
        loss, speed = fact.fields.get("loss"), speed_of(fact)
        if isinstance(loss, int | float):
            entry = replace(entry, losses={**entry.losses, peer: float(loss)})
        if speed is not None:
            entry = replace(entry, speeds={**entry.speeds, peer: speed})
    elif fact.kind == "evaluation":
        loss = fact.fields.get("loss")
        if isinstance(loss, int | float):
            entry = replace(entry, validation={**entry.validation, peer: float(loss)})
    elif fact.kind == "bytes":
        sent, so_far = fact.fields.get("rounds"), before.figures.for_rounds
        if isinstance(sent, int | float) and so_far is not None and sent >= so_far.value:
            entry = replace(entry, sent={**entry.sent, peer: int(sent - so_far.value)})
    elif fact.kind == "apply":
        digest = str(fact.fields.get("digest", ""))
        entry = replace(entry, states={**entry.states, peer: digest})
    if entry is not old:
        following.round(entry)
        if fact.kind == "apply":
            compare(following, entry, fact.seen_at)


def _at(fact: Reported) -> float:
    """When an event happened, by the coordinator's clock."""
    behind = fact.seen_at - fact.t
    return fact.t if 0 <= behind < BELIEVED else fact.seen_at


def speed_of(fact: Reported) -> float | None:
    """Tokens per second of a report's training; None where it does not say."""
    tokens, seconds = fact.fields.get("tokens"), fact.fields.get("seconds")
    if isinstance(tokens, int | float) and isinstance(seconds, int | float) and seconds > 0:
        return float(tokens / seconds)
    return None
