"""The verdict: what happens in a run now, and why, in one sentence. Pure."""

from dataclasses import dataclass
from typing import Literal

from node.coordinator.view import Member, View

Level = Literal["good", "attention", "bad"]

STALE = 20.0
"""Seconds without a word after which a member counts as unheard."""

STALLED = 5.0
"""A round is stalled once it lasts so many times as long as the median of those before, and a minute at least."""


@dataclass(frozen=True)
class Line:
    """The verdict.

    Attributes:
        level: Green, amber or red.
        sentence: What happens, with names and numbers.
        why: One word for it.
    """

    level: Level
    sentence: str
    why: str


@dataclass(frozen=True)
class Dot:
    """One member in one phase of the strip.

    Attributes:
        reached: It is through this phase.
        here: It is in it.
    """

    peer: str
    reached: bool
    here: bool


PHASES = ("compute", "encode", "ready", "reduce", "vote", "apply")
"""The phases of a round in order, as the strip shows them."""

_DONE = {
    "compute": "computed",
    "encode": "encoded",
    "ready": "ready",
    "reduce": "reduced",
    "vote": "voted",
    "apply": "applied",
}
_PHASE_OF = {
    "training": "compute",
    "ready": "ready",
    "reducing": "reduce",
    "voting": "vote",
    "syncing": "apply",
}


def shown(member: Member | None, peer: str) -> str:
    """A member's name for people: its own, else the end of its id."""
    return member.who.name if member is not None and member.who.name else f"…{peer[-6:]}"


def strip(view: View) -> dict[str, tuple[Dot, ...]]:
    """For each phase of the present round one dot per member that takes part."""
    entry = view.present()
    marks = entry.marks if entry is not None else {}
    found = {}
    for phase in PHASES:
        dots = []
        for peer in view.tip.taking_part:
            member = view.members.get(peer)
            doing = member.doing if member is not None else None
            here = (
                doing is not None
                and doing.round == view.tip.round + 1
                and _PHASE_OF.get(doing.phase) == phase
            )
            dots.append(Dot(peer, _DONE[phase] in marks.get(peer, {}), here))
        found[phase] = tuple(dots)
    return found


def heard(view: View, peer: str, now: float) -> bool:
    """Whether a member was heard of lately."""
    member = view.members.get(peer)
    return member is not None and now - member.heard_at <= STALE and member.doing.phase != "gone"


def median_round(view: View) -> float | None:
    """How long the last decided rounds took, seconds: their median."""
    spans = sorted(
        entry.decided_at - entry.began_at
        for entry in view.rounds.values()
        if entry.decided_at and entry.began_at and entry.outcome == "decided"
    )
    return spans[len(spans) // 2] if spans else None


def stalled_for(view: View, now: float) -> float | None:
    """For how long the present round has lasted, where that is far too long; None where it is not."""
    tip = view.tip
    if tip.round < -1 or tip.paused or tip.finished:
        return None
    usual = median_round(view)
    bound = max(60.0, STALLED * usual) if usual is not None else 600.0
    lasts = now - tip.decided_at
    return lasts if lasts > bound else None


def line(view: View, now: float, trouble: str = "") -> Line:
    """The verdict at a time.

    Args:
        view: The present.
        now: Unix seconds.
        trouble: What is wrong with the coordinator's database; empty for nothing.
    """
    found = _line(view, now)
    if trouble and found.level == "good":
        return Line("attention", f"{found.sentence} {trouble}", "database")
    return found


def _line(view: View, now: float) -> Line:
    tip, number = view.tip, view.tip.round + 1
    if tip.round < -1:
        here = sum(member.standing != "gone" for member in view.members.values())
        wanted = view.run.start_members
        return Line("attention", f"The run has not begun: {here} of {wanted} members are here.", "start")
    if tip.finished:
        return Line("good", f"The run is finished: round {tip.round} was its last.", "finished")
    if tip.halted:
        return Line("bad", f"The run is halted in round {number}: {tip.halted}", "halted")
    if view.agreement.dissenters:
        names = ", ".join(shown(view.members.get(peer), peer) for peer in view.agreement.dissenters[:3])
        first = view.agreement.first_divergent
        return Line(
            "bad", f"Members disagree: after round {view.agreement.round} {names} holds another state than "
            f"{view.agreement.agree} of {view.agreement.said} (first after round {first}).", "divergence",
        )  # fmt: skip
    voters = [peer for peer in tip.electorate if heard(view, peer, now)]
    part = tip.taking_part
    if part and not any(heard(view, peer, now) for peer in part):
        last = max(
            (view.members[peer].heard_at for peer in part if peer in view.members), default=tip.decided_at
        )
        return Line(
            "bad", f"Nothing was heard of the {_members(len(part))} of round {number} for {now - last:.0f} s.",
            "silence",
        )  # fmt: skip
    if 2 * len(voters) <= len(tip.electorate):
        return Line(
            "bad", f"Round {number}: only {len(voters)} of {len(tip.electorate)} voters are heard: no quorum.", "quorum"
        )  # fmt: skip
    if tip.paused:
        return Line("attention", f"The operator paused the run before round {number}.", "paused")
    if (lasts := stalled_for(view, now)) is not None:
        return Line("bad", f"Round {number} has lasted {lasts:.0f} s.{_waiting_for(view, now)}", "stalled")
    return _running(view, now, number)


def _running(view: View, now: float, number: int) -> Line:
    part = view.tip.taking_part
    entry = view.present()
    marks = entry.marks if entry is not None else {}
    ready = sum("ready" in marks.get(peer, {}) for peer in part)
    silent = [peer for peer in part if not heard(view, peer, now)]
    if silent:
        names = ", ".join(shown(view.members.get(peer), peer) for peer in silent[:3])
        return Line(
            "attention", f"Round {number}: {ready} of {len(part)} members ready; nothing is heard of {names}.", "silent"
        )  # fmt: skip
    attempts = entry.attempts if entry is not None else 0
    if attempts > 1:
        return Line(
            "attention", f"Round {number} is in attempt {attempts}.{_waiting_for(view, now)}", "attempts"
        )
    waits = _waiting_for(view, now)
    if ready and ready < len(part):
        return Line("good", f"Round {number}: {ready} of {len(part)} members ready{waits or '.'}", "ready")
    phases = [view.members[peer].doing.phase for peer in part if peer in view.members]
    common = max(set(phases), key=lambda each: (phases.count(each), each), default="")
    return Line(
        "good",
        f"Round {number}: {phases.count(common)} of {len(part)} members are {common or 'here'}.",
        "running",
    )


def _waiting_for(view: View, now: float) -> str:
    """For whom the members wait, and how long at most; begins with a comma or is empty."""
    wanted: dict[str, int] = {}
    until = 0.0
    for peer in view.tip.taking_part:
        member = view.members.get(peer)
        if member is None or member.doing.round != view.tip.round + 1:
            continue
        for missing in member.doing.missing:
            wanted[missing] = wanted.get(missing, 0) + 1
        if member.doing.missing and member.doing.until is not None:
            until = max(until, member.doing.until)
    if not wanted:
        return ""
    whom = max(wanted, key=lambda each: (wanted[each], each))
    member = view.members.get(whom)
    why = f" ({member.doing.phase})" if member is not None and member.doing.phase else ""
    more = f" and {len(wanted) - 1} more" if len(wanted) > 1 else ""
    most = f"at most {until - now:.0f} s more " if until > now else ""
    return f", waiting {most}for {shown(member, whom)}{why}{more}."


def _members(count: int) -> str:
    return "member" if count == 1 else f"{count} members"
