"""Who is there: records, admissions, what was refused, evidence, what the operator did."""

from dataclasses import replace

from node.coordinator.facts import Acted, Admitted, Evidence, Gone, Measured, Record, Refused
from node.coordinator.folds.making import INSIDE, Next
from node.coordinator.view import Action, Member, Number, Refusal


def record(following: Next, fact: Record) -> None:
    """A directory record."""
    before = following.view.members.get(fact.peer) or Member(fact.peer)
    old = before.who
    who = replace(
        old, name=fact.name or old.name, version=fact.version, protocol=fact.protocol, roles=fact.roles,
        reach=fact.reach, seen=fact.seen, seat=fact.seat, as_of=fact.seen_at,
    )  # fmt: skip
    standing = before.standing
    if standing in ("outside", "newcomer", "gone", "left"):
        standing = "newcomer" if fact.newcomer else "outside"
    following.member(replace(before, who=who, standing=standing, heard_at=max(before.heard_at, fact.seen_at)))


def gone(following: Next, fact: Gone) -> None:
    """A peer is not there any more."""
    before = following.view.members.get(fact.peer)
    if before is None:
        return
    standing = before.standing if before.standing in (*INSIDE, "left") else "gone"
    doing = replace(before.doing, phase="gone", sentence=fact.why, as_of=fact.seen_at, until=None)
    following.member(replace(before, standing=standing, doing=doing))


def measured(following: Next, fact: Measured) -> None:
    """The way to a peer."""
    before = following.view.members.get(fact.peer) or Member(fact.peer)
    figures = replace(before.figures, rtt=Number(fact.rtt, fact.seen_at, "witnessed"), path=fact.path)
    following.member(replace(before, figures=figures))


def admitted(following: Next, fact: Admitted) -> None:
    """A peer was admitted."""
    before = following.view.members.get(fact.peer) or Member(fact.peer)
    standing = "outside" if before.standing == "newcomer" else before.standing
    who = replace(before.who, seat=fact.seat, as_of=fact.seen_at)
    following.member(replace(before, who=who, standing=standing))


def refused(following: Next, fact: Refused) -> None:
    """Something was refused."""
    note_refusal(
        following,
        Refusal(
            fact.peer, fact.what, fact.code, fact.reason, fact.round, fact.source, fact.seen_at, fact.trust
        ),
    )


def note_refusal(following: Next, refusal: Refusal) -> None:
    """Count a refusal, and keep it among the last."""
    following.one_more("refusals", refusal)
    following.single("totals", replace(following.view.totals, refused=following.view.totals.refused + 1))
    before = following.view.members.get(refusal.peer)
    if before is not None:
        tally = replace(before.tally, refused=before.tally.refused + 1)
        following.member(replace(before, tally=tally))


def evidence(following: Next, fact: Evidence) -> None:
    """A peer was shown to have broken a rule; each kind counts once."""
    known = any((entry.peer, entry.what) == (fact.accused, fact.kind) for entry in following.view.evidence)
    if known:
        return
    following.one_more(
        "evidence",
        Refusal(
            fact.accused, fact.kind, "", fact.sentence, fact.round, fact.source, fact.seen_at, fact.trust
        ),
    )
    before = following.view.members.get(fact.accused) or Member(fact.accused)
    following.member(replace(before, tally=replace(before.tally, strikes=before.tally.strikes + 1)))


def acted(following: Next, fact: Acted) -> None:
    """An entry of the audit log."""
    action = Action(
        fact.number, fact.seen_at, fact.actor, fact.action, fact.peer, fact.reason, fact.order, fact.before,
        fact.after, fact.outcome,
    )  # fmt: skip
    following.one_more("actions", action)
