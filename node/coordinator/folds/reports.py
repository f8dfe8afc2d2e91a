"""What members say of themselves: what they do, their figures, their troubles, what they refuse."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from node.coordinator.facts import Reported
from node.coordinator.folds.making import Next, whole
from node.coordinator.folds.peers import note_refusal
from node.coordinator.folds.rollouts import learning
from node.coordinator.folds.timeline import AFTER, BELIEVED, in_round, speed_of
from node.coordinator.view import Member, Number, Refusal

_REFUSALS = {
    "chunk.refused": "chunk",
    "bytes.refused": "bytes",
    "ready.refused": "ready",
    "message.refused": "message",
}
_LEARNING = ("rollouts.queue", "rollouts.waiting", "rollouts.step")
_TROUBLES = {
    "train.failed": "Training failed: {reason}",
    "train.not-finite": "{reason}",
    "workers.stopped": "{reason}",
    "checkpoint.failed": "A checkpoint could not be written: {reason}",
    "clock.wrong": "{reason}",
    "halted": "{reason}",
    "diverged": "Its state before round {round} differs from the certified one; it restores it.",
}
_TROUBLE_ENDS = ("workers.continued", "clock.right", "train.end", "state.downloaded", "member.joined")


def reported(following: Next, fact: Reported) -> None:
    """An event of a member's log."""
    before = following.view.members.get(fact.peer) or Member(fact.peer)
    after = _REPORTS.get(fact.kind, _keep)(before, fact)
    text = _TROUBLES.get(fact.kind)
    if text is not None:
        sentence = text.format_map(_Lenient(fact.fields))
        after = replace(after, doing=replace(after.doing, trouble=sentence, as_of=fact.seen_at))
    elif fact.kind in _TROUBLE_ENDS and after.doing.trouble:
        after = replace(after, doing=replace(after.doing, trouble="", as_of=fact.seen_at))
    standing = "outside" if after.standing in ("gone", "newcomer") else after.standing
    following.member(replace(after, heard_at=fact.seen_at, standing=standing))
    number = fact.fields.get("round")
    if isinstance(number, int) and fact.kind in AFTER:
        number -= 1
    if isinstance(number, int):
        in_round(following, fact, number, before)
    if fact.kind in _REFUSALS:
        note_refusal(
            following,
            Refusal(
                str(fact.fields.get("peer", "")), _REFUSALS[fact.kind], str(fact.fields.get("code", "")),
                str(fact.fields.get("reason", "")), number if isinstance(number, int) else -1, fact.peer,
                fact.seen_at, "witnessed",
            ),
        )  # fmt: skip
    if fact.kind in _LEARNING:
        learning(following, fact)
    if fact.kind == "halted" and not following.view.tip.halted:
        reason = str(fact.fields.get("reason", ""))
        following.single("tip", replace(following.view.tip, halted=reason))


def _keep(member: Member, fact: Reported) -> Member:
    return member


def _started(member: Member, fact: Reported) -> Member:
    get = fact.fields.get
    roles = get("roles")
    who = replace(
        member.who,
        name=str(get("name", "")) or member.who.name,
        version=str(get("version", "")) or member.who.version,
        roles=tuple(map(str, roles)) if isinstance(roles, list | tuple) else member.who.roles,
        as_of=fact.seen_at,
    )
    zero = Number(0.0, fact.seen_at)  # a process counts its bytes from its start
    return replace(member, who=who, figures=replace(member.figures, sent=zero, for_rounds=zero))


def _phase(member: Member, fact: Reported) -> Member:
    get, old = fact.fields.get, member.doing
    left, missing = get("until"), get("missing")
    behind = fact.seen_at - fact.t if 0 <= fact.seen_at - fact.t < BELIEVED else 0.0
    since = fact.seen_at - behind
    same = (old.phase, old.reason, old.round) == (get("phase"), get("reason"), get("round"))
    doing = replace(
        old,
        phase=str(get("phase", "")),
        reason=str(get("reason", "")),
        sentence=str(get("sentence", "")),
        until=since + left if isinstance(left, int | float) else None,
        since=old.since if same else since,
        missing=tuple(map(str, missing)) if isinstance(missing, list | tuple) else (),
        round=whole(get("round"), old.round),
        attempt=whole(get("attempt"), old.attempt),
        as_of=fact.seen_at,
    )
    return replace(member, doing=doing)


def _step(member: Member, fact: Reported) -> Member:
    loss, step = fact.fields.get("loss"), fact.fields.get("step")
    figures = member.figures
    if isinstance(loss, int | float):
        figures = replace(figures, loss=Number(float(loss), fact.seen_at))
    if isinstance(step, int | float):
        figures = replace(figures, step=Number(float(step), fact.seen_at))
    return replace(member, figures=figures)


def _trained(member: Member, fact: Reported) -> Member:
    speed = speed_of(fact)
    member = _step(
        member, replace(fact, fields={"loss": fact.fields.get("loss"), "step": fact.fields.get("steps")})
    )
    if speed is None:
        return member
    return replace(member, figures=replace(member.figures, speed=Number(speed, fact.seen_at)))


def _bytes(member: Member, fact: Reported) -> Member:
    total, old = fact.fields.get("total"), member.figures.sent
    if not isinstance(total, int | float):
        return member
    figures = replace(member.figures, sent=Number(float(total), fact.seen_at))
    rounds = fact.fields.get("rounds")
    if isinstance(rounds, int | float):
        figures = replace(figures, for_rounds=Number(float(rounds), fact.seen_at))
    if old is not None and fact.seen_at > old.as_of and total >= old.value:
        rate = (total - old.value) / (fact.seen_at - old.as_of)
        figures = replace(figures, rate=Number(rate, fact.seen_at))
    return replace(member, figures=figures)


def _applied(member: Member, fact: Reported) -> Member:
    digest = str(fact.fields.get("digest", ""))
    return replace(member, state=(whole(fact.fields.get("round"), 0) - 1, digest))


def _reach(member: Member, fact: Reported) -> Member:
    return replace(
        member,
        who=replace(
            member.who,
            reach=str(fact.fields.get("reach", "")),
            seen=str(fact.fields.get("seen", "")),
            reachability=str(fact.fields.get("sentence", "")),
        ),
    )


_REPORTS: dict[str, Callable[[Member, Reported], Member]] = {
    "node.start": _started,
    "node.phase": _phase,
    "node.reach": _reach,
    "train.step": _step,
    "train.end": _trained,
    "bytes": _bytes,
    "apply": _applied,
}


class _Lenient(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"
