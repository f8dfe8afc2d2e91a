"""From facts to the view: ``fold(view, fact) -> (view, deltas)``, pure, with work in proportion to what changes."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from node.coordinator.facts import (
    Acted,
    Admitted,
    Decided,
    Evidence,
    Fact,
    Gone,
    Measured,
    Opened,
    Policy,
    Record,
    Refused,
    Reported,
    Verdict,
)
from node.coordinator.folds import chain, peers, reports, rollouts
from node.coordinator.folds.making import Next
from node.coordinator.view import Delta, View


def fold(view: View, fact: Fact, sequence: int = 0) -> tuple[View, tuple[Delta, ...]]:
    """The view after one more fact.

    Args:
        view: The view so far.
        fact: What was learned.
        sequence: The fact's number in the store; 0 counts on from the view's.

    Returns:
        The next view, and what changed in it beside ``sequence``.
    """
    following = Next(replace(view, sequence=sequence or view.sequence + 1), [])
    _FOLDS[type(fact)](following, fact)
    return following.view, tuple(following.deltas)


def replay(facts: Iterable[Fact], view: View | None = None) -> View:
    """The view after many facts."""
    view = view or View()
    for fact in facts:
        view, _ = fold(view, fact)
    return view


_FOLDS: dict[type[Fact], Callable[[Next, Any], None]] = {
    Opened: chain.opened,
    Decided: chain.decided,
    Reported: reports.reported,
    Record: peers.record,
    Gone: peers.gone,
    Measured: peers.measured,
    Admitted: peers.admitted,
    Refused: peers.refused,
    Evidence: peers.evidence,
    Acted: peers.acted,
    Policy: rollouts.policy,
    Verdict: rollouts.verdict,
}
