"""Alerts: what a person should look at now. Pure: a view and a time go in."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from node.coordinator.verdict import heard, shown, stalled_for
from node.coordinator.view import Round, View

SPIKE = 1.5
"""A round's training loss is a spike once it is so many times the median of the rounds before."""

CHECKPOINT_ROUNDS = 50
"""A checkpoint is too old once so many rounds were decided since."""

_COMPARED = 20


@dataclass(frozen=True)
class Alert:
    """One reason to look.

    Attributes:
        name: ``stalled``, ``divergence``, ``loss``, ``members``, ``checkpoint``, ``ban``, ``evidence`` or ``database``.
        about: Tells two alerts of one name apart: a peer, a round; may be empty.
        level: ``warning`` or ``critical``.
        sentence: What is wrong, for people.
        since: Since when, Unix seconds, where that is known; else 0.
    """

    name: str
    about: str
    level: str
    sentence: str
    since: float = 0.0


NAMES: Mapping[str, str] = {
    "stalled": "The present round lasts far longer than the ones before.",
    "divergence": "A member holds another outer state than the others.",
    "loss": "The training loss is not a number, or far above that of the rounds before.",
    "members": "Fewer members are heard than the run began with.",
    "checkpoint": "No checkpoint was written for many rounds.",
    "ban": "A peer was banned.",
    "evidence": "Something was signed that no honest member signs.",
    "database": "The coordinator's database cannot be written.",
}
"""Every alert, and what it means."""

_BAN_SHOWN = 3600.0  # seconds


def loss_of(entry: Round) -> float | None:
    """The mean training loss of a round, over the members that said one; None where none did."""
    return sum(entry.losses.values()) / len(entry.losses) if entry.losses else None


def alerts(view: View, now: float, trouble: str = "") -> tuple[Alert, ...]:
    """All alerts at a time.

    Args:
        view: The present.
        now: Unix seconds.
        trouble: What is wrong with the coordinator's database; empty for nothing.
    """
    found = [Alert("database", "", "critical", trouble)] if trouble else []
    number = view.tip.round + 1
    if (lasts := stalled_for(view, now)) is not None:
        sentence = f"Round {number} has lasted {lasts:.0f} s."
        found.append(Alert("stalled", str(number), "critical", sentence, view.tip.decided_at))
    agreement = view.agreement
    for peer in agreement.dissenters:
        sentence = f"{shown(view.members.get(peer), peer)} holds another state after round {agreement.round}."
        found.append(Alert("divergence", peer, "critical", sentence, agreement.as_of))
    found += _losses(view)
    part = view.tip.taking_part
    present = sum(heard(view, peer, now) for peer in part)
    if (
        view.tip.round >= -1
        and not view.tip.finished
        and present < min(view.run.start_members, len(part) or 1)
    ):
        sentence = f"{present} members are heard; the run began with {view.run.start_members}."
        found.append(Alert("members", "", "critical" if present == 0 else "warning", sentence))
    found += _checkpoints(view)
    for action in view.actions:
        if action.action == "ban" and now - action.at < _BAN_SHOWN:
            sentence = f"{shown(view.members.get(action.peer), action.peer)} was banned: {action.reason}"
            found.append(Alert("ban", f"{action.peer}/{action.number}", "warning", sentence, action.at))
    for entry in view.evidence:
        sentence = f"{shown(view.members.get(entry.peer), entry.peer)}: {entry.reason or entry.what}"
        found.append(Alert("evidence", f"{entry.peer}/{entry.what}", "critical", sentence, entry.at))
    return tuple(found)


def _losses(view: View) -> list[Alert]:
    rounds = sorted(view.rounds.values(), key=lambda entry: entry.round)
    losses = [(entry, loss) for entry in rounds if (loss := loss_of(entry)) is not None]
    found = []
    if losses:
        last, loss = losses[-1]
        bad = [peer for peer, value in last.losses.items() if not math.isfinite(value)]
        before = sorted(value for _, value in losses[:-1][-_COMPARED:])
        usual = before[len(before) // 2] if len(before) >= 3 else None
        if bad:
            names = ", ".join(shown(view.members.get(peer), peer) for peer in bad[:3])
            found.append(
                Alert("loss", str(last.round), "critical", f"Round {last.round}: no finite loss at {names}.")
            )
        elif usual is not None and usual > 0 and loss > SPIKE * usual:
            sentence = (
                f"Round {last.round}: the training loss is {loss:.3f}, {usual:.3f} in the rounds before."
            )
            found.append(Alert("loss", str(last.round), "warning", sentence))
    for peer, member in view.members.items():
        if member.doing.trouble and "finite" in member.doing.trouble:
            sentence = f"{shown(member, peer)}: {member.doing.trouble}"
            found.append(Alert("loss", peer, "critical", sentence, member.doing.as_of))
    return found


def _checkpoints(view: View) -> list[Alert]:
    held = [entry for entry in view.versions.values() if entry.kind == "checkpoint"]
    if not held:
        return []
    newest = max(held, key=lambda entry: entry.version)
    behind = view.tip.round - newest.version
    if behind <= CHECKPOINT_ROUNDS:
        return []
    sentence = f"The newest checkpoint is of round {newest.version}, {behind} rounds ago."
    return [Alert("checkpoint", "", "warning", sentence, newest.at)]
