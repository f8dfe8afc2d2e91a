"""From facts to the view: ``fold(view, fact) -> (view, deltas)``, pure, with work in proportion to what changes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
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
from node.coordinator.view import (
    RECENT,
    RECENT_ROUNDS,
    Action,
    Agreement,
    Delta,
    Judged,
    Member,
    Number,
    Refusal,
    Round,
    Run,
    Tip,
    Version,
    View,
)

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
_REFUSALS = {
    "chunk.refused": "chunk",
    "bytes.refused": "bytes",
    "ready.refused": "ready",
    "message.refused": "message",
}
_EARLY = 3
"""Events of so many rounds after the last decided one are taken: a member may know of a decision earlier."""

_AFTER = ("apply", "bytes")
"""Kinds whose ``round`` is the one that begins with it, so they belong to the one before."""

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


@dataclass
class _Next:
    """A view that is being made; only what is assigned here changes, and each change is noted."""

    view: View
    deltas: list[Delta]

    def _set(self, topic: str, value: Any) -> None:
        change: dict[str, Any] = {topic: value}
        self.view = replace(self.view, **change)

    def single(self, topic: str, value: object) -> None:
        self._set(topic, value)
        self.deltas.append(Delta(topic, "", value))

    def member(self, member: Member) -> None:
        members = dict(self.view.members)
        members[member.peer] = member
        self.view = replace(self.view, members=members)
        self.deltas.append(Delta("members", member.peer, member))

    def round(self, entry: Round) -> None:
        rounds = dict(self.view.rounds)
        rounds[str(entry.round)] = entry
        self.deltas.append(Delta("rounds", str(entry.round), entry))
        if len(rounds) > RECENT_ROUNDS:
            oldest = min(rounds, key=int)
            del rounds[oldest]
            self.deltas.append(Delta("rounds", oldest, None))
        self.view = replace(self.view, rounds=rounds)

    def one_more(self, topic: str, value: object) -> None:
        entries = (*getattr(self.view, topic), value)[-RECENT:]
        self._set(topic, entries)
        self.deltas.append(Delta(topic, "", value))


def fold(view: View, fact: Fact, sequence: int = 0) -> tuple[View, tuple[Delta, ...]]:
    """The view after one more fact.

    Args:
        view: The view so far.
        fact: What was learned.
        sequence: The fact's number in the store; 0 counts on from the view's.

    Returns:
        The next view, and what changed in it beside ``sequence``.
    """
    following = _Next(replace(view, sequence=sequence or view.sequence + 1), [])
    _FOLDS[type(fact)](following, fact)
    return following.view, tuple(following.deltas)


def replay(facts: Iterable[Fact], view: View | None = None) -> View:
    """The view after many facts."""
    view = view or View()
    for fact in facts:
        view, _ = fold(view, fact)
    return view


# ---- the run and its chain


def _opened(following: _Next, fact: Opened) -> None:
    run = Run(
        fact.run, fact.name, fact.rounds, fact.policy, fact.operator, fact.start_members, fact.changeable,
        fact.parameters,
    )  # fmt: skip
    following.single("run", run)


def _decided(following: _Next, fact: Decided) -> None:
    old = following.view.tip
    if (fact.epoch, fact.round) <= (old.epoch, old.round) and not (fact.begins and fact.epoch > old.epoch):
        return
    tip = Tip(
        fact.epoch, fact.round, fact.digest, fact.seen_at, fact.electorate, fact.members, fact.ghosts, fact.banned,
        fact.order_number, fact.parameters, fact.paused, fact.finished,
    )  # fmt: skip
    following.single("tip", tip)
    if fact.begins:
        _cut(following, fact)
    else:
        _close_round(following, fact, old)
    _open_round(following, fact)
    _stand(following, fact, old)
    _count(following, fact)
    if fact.base:
        _certify_state(following, fact.round - 1, fact.base, fact.seen_at)
    for action in following.view.actions:
        if action.order and action.order in fact.orders:
            taken = replace(action, taken_up=fact.round)
            entries = tuple(
                taken if entry.number == action.number else entry for entry in following.view.actions
            )
            following.view = replace(following.view, actions=entries)
            following.deltas.append(Delta("actions", str(action.number), taken))


def _cut(following: _Next, fact: Decided) -> None:
    """An epoch begins: rounds after its beginning never were."""
    rounds = {key: entry for key, entry in following.view.rounds.items() if entry.round <= fact.round}
    gone = [key for key in following.view.rounds if key not in rounds]
    following.view = replace(following.view, rounds=rounds)
    following.deltas.extend(Delta("rounds", key, None) for key in gone)


def _close_round(following: _Next, fact: Decided, old: Tip) -> None:
    entry = following.view.rounds.get(str(fact.round)) or Round(fact.round, expected=old.taking_part)
    following.round(
        replace(
            entry,
            epoch=fact.epoch,
            outcome="decided" if fact.roster else "empty",
            digest=fact.digest,
            base=fact.base,
            attempts=fact.attempt + 1,
            decided_at=fact.seen_at,
            tokens=fact.tokens,
            partial_tokens=fact.partial_tokens,
            roster=fact.roster,
            left=fact.left,
            failed_leaders=fact.failed_leaders,
            voters=fact.voters,
            orders=fact.orders,
        )
    )


def _open_round(following: _Next, fact: Decided) -> None:
    if fact.finished:
        return
    number = fact.round + 1
    entry = following.view.rounds.get(str(number)) or Round(number)
    expected = (*fact.electorate, *fact.members)
    following.round(replace(entry, epoch=fact.epoch, began_at=fact.seen_at, expected=expected))


def _stand(following: _Next, fact: Decided, old: Tip) -> None:
    """Who has which standing from here on, and what the round means to each."""
    standing = dict.fromkeys(fact.left, "left")
    standing |= dict.fromkeys(fact.ghosts, "ghost") | dict.fromkeys(fact.members, "member")
    standing |= dict.fromkeys(fact.electorate, "voter") | dict.fromkeys(fact.banned, "banned")
    listed = {} if fact.begins else {entry.peer: entry for entry in fact.roster}
    expected = () if fact.begins or old.paused else old.taking_part
    named = standing.keys() | listed.keys() | set(expected)
    for peer in sorted(named | {p for p, m in following.view.members.items() if m.standing in _INSIDE}):
        before = following.view.members.get(peer) or Member(peer)
        now = standing.get(peer, "outside" if before.standing in _INSIDE else before.standing)
        tally, entry = before.tally, listed.get(peer)
        if entry is not None:
            tally = replace(
                tally, accepted=tally.accepted + 1, verified=tally.verified + entry.verified,
                claimed=tally.claimed + entry.tokens, last_round=fact.round, last_at=fact.seen_at,
            )  # fmt: skip
        elif peer in expected:
            tally = replace(tally, late=tally.late + 1)
        after = replace(before, standing=now, tally=tally)
        if after != before:
            following.member(after)


_INSIDE = ("voter", "member", "ghost", "banned")


def _count(following: _Next, fact: Decided) -> None:
    if fact.begins:
        return
    totals = following.view.totals
    totals = replace(
        totals,
        rounds=totals.rounds + 1,
        tokens=totals.tokens + fact.tokens,
        partial=totals.partial + fact.partial_tokens,
        verified=totals.verified + sum(entry.verified for entry in fact.roster),
        claimed=totals.claimed + sum(entry.tokens for entry in fact.roster),
        as_of=fact.seen_at,
    )
    following.single("totals", totals)


# ---- what members say


def _reported(following: _Next, fact: Reported) -> None:
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
    if isinstance(number, int) and fact.kind in _AFTER:
        number -= 1
    if isinstance(number, int):
        _in_round(following, fact, number, before)
    if fact.kind in _REFUSALS:
        _note_refusal(
            following,
            Refusal(
                str(fact.fields.get("peer", "")), _REFUSALS[fact.kind], str(fact.fields.get("code", "")),
                str(fact.fields.get("reason", "")), number if isinstance(number, int) else -1, fact.peer,
                fact.seen_at, "witnessed",
            ),
        )  # fmt: skip
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
    return replace(member, who=who)


def _phase(member: Member, fact: Reported) -> Member:
    get, old = fact.fields.get, member.doing
    left, missing = get("until"), get("missing")
    behind = fact.seen_at - fact.t if 0 <= fact.seen_at - fact.t < _BELIEVED else 0.0
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
        round=_whole(get("round"), old.round),
        attempt=_whole(get("attempt"), old.attempt),
        as_of=fact.seen_at,
    )
    return replace(member, doing=doing)


_BELIEVED = 30.0
"""Up to so many seconds between an event and its arrival are taken for delay, not for a wrong clock."""


def _at(fact: Reported) -> float:
    """When an event happened, by the coordinator's clock."""
    behind = fact.seen_at - fact.t
    return fact.t if 0 <= behind < _BELIEVED else fact.seen_at


def _step(member: Member, fact: Reported) -> Member:
    loss, step = fact.fields.get("loss"), fact.fields.get("step")
    figures = member.figures
    if isinstance(loss, int | float):
        figures = replace(figures, loss=Number(float(loss), fact.seen_at))
    if isinstance(step, int | float):
        figures = replace(figures, step=Number(float(step), fact.seen_at))
    return replace(member, figures=figures)


def _speed_of(fact: Reported) -> float | None:
    tokens, seconds = fact.fields.get("tokens"), fact.fields.get("seconds")
    if isinstance(tokens, int | float) and isinstance(seconds, int | float) and seconds > 0:
        return float(tokens / seconds)
    return None


def _trained(member: Member, fact: Reported) -> Member:
    speed = _speed_of(fact)
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
    return replace(member, state=(_whole(fact.fields.get("round"), 0) - 1, digest))


def _reach(member: Member, fact: Reported) -> Member:
    return replace(
        member,
        who=replace(
            member.who, reach=str(fact.fields.get("reach", "")), seen=str(fact.fields.get("seen", ""))
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


def _in_round(following: _Next, fact: Reported, number: int, before: Member) -> None:
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
        attempts = max(entry.attempts, _whole(fact.fields.get("attempt"), 0) + 1)
        entry = entry if attempts == entry.attempts else replace(entry, attempts=min(attempts, 10_000))
    if fact.kind == "train.end":
        loss, speed = fact.fields.get("loss"), _speed_of(fact)
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
        if isinstance(sent, int | float):
            more = sent - so_far.value if so_far is not None and sent >= so_far.value else sent
            entry = replace(entry, sent={**entry.sent, peer: int(more)})
    elif fact.kind == "apply":
        digest = str(fact.fields.get("digest", ""))
        entry = replace(entry, states={**entry.states, peer: digest})
    if entry is not old:
        following.round(entry)
        if fact.kind == "apply":
            _compare(following, entry, fact.seen_at)


# ---- agreement


def _certify_state(following: _Next, number: int, base: str, at: float) -> None:
    """A value names the state that its round was trained on: that after the round before."""
    entry = following.view.rounds.get(str(number))
    if entry is not None:
        _compare(following, entry, at, certified=base)
    elif following.view.agreement.round < 0:
        following.single("agreement", Agreement(number, base, certified=True, as_of=at))


def _compare(following: _Next, entry: Round, at: float, certified: str = "") -> None:
    """Compare what members say they hold after a round."""
    old = following.view.agreement
    if entry.round < old.round:
        return
    if not certified and entry.round == old.round and old.certified:
        certified = old.digest
    said = entry.states
    counts: dict[str, int] = {}
    for digest in said.values():
        counts[digest] = counts.get(digest, 0) + 1
    digest = certified or max(counts, key=lambda each: (counts[each], each), default="")
    dissenters = tuple(sorted(peer for peer, held in said.items() if held != digest))
    first = old.first_divergent
    if dissenters and first < 0:
        first = entry.round
    agreement = Agreement(
        entry.round, digest, bool(certified), counts.get(digest, 0), len(said), dissenters, first, at
    )
    following.single("agreement", agreement)


# ---- peers, admission, refusals, evidence


def _record(following: _Next, fact: Record) -> None:
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


def _gone(following: _Next, fact: Gone) -> None:
    before = following.view.members.get(fact.peer)
    if before is None:
        return
    standing = before.standing if before.standing in (*_INSIDE, "left") else "gone"
    doing = replace(before.doing, phase="gone", sentence=fact.why, as_of=fact.seen_at, until=None)
    following.member(replace(before, standing=standing, doing=doing))


def _measured(following: _Next, fact: Measured) -> None:
    before = following.view.members.get(fact.peer) or Member(fact.peer)
    figures = replace(before.figures, rtt=Number(fact.rtt, fact.seen_at, "witnessed"), path=fact.path)
    following.member(replace(before, figures=figures))


def _admitted(following: _Next, fact: Admitted) -> None:
    before = following.view.members.get(fact.peer) or Member(fact.peer)
    standing = "outside" if before.standing == "newcomer" else before.standing
    who = replace(before.who, seat=fact.seat, as_of=fact.seen_at)
    following.member(replace(before, who=who, standing=standing))


def _refused(following: _Next, fact: Refused) -> None:
    _note_refusal(
        following,
        Refusal(
            fact.peer, fact.what, fact.code, fact.reason, fact.round, fact.source, fact.seen_at, fact.trust
        ),
    )


def _note_refusal(following: _Next, refusal: Refusal) -> None:
    following.one_more("refusals", refusal)
    following.single("totals", replace(following.view.totals, refused=following.view.totals.refused + 1))
    before = following.view.members.get(refusal.peer)
    if before is not None:
        tally = replace(before.tally, refused=before.tally.refused + 1)
        following.member(replace(before, tally=tally))


def _evidence(following: _Next, fact: Evidence) -> None:
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


def _acted(following: _Next, fact: Acted) -> None:
    action = Action(
        fact.number, fact.seen_at, fact.actor, fact.action, fact.peer, fact.reason, fact.order, fact.before,
        fact.after, fact.outcome,
    )  # fmt: skip
    following.one_more("actions", action)


# ---- versions and rollouts


def _policy(following: _Next, fact: Policy) -> None:
    key = f"{fact.kind}/{fact.version}"
    versions = dict(following.view.versions)
    old = versions.get(key) or Version(key, fact.kind, fact.version, at=fact.seen_at)
    holders = {**old.holders, fact.holder: fact.progress} if fact.holder else old.holders
    versions[key] = replace(
        old, digest=fact.digest or old.digest, size=fact.size or old.size, holders=holders
    )
    following.deltas.append(Delta("versions", key, versions[key]))
    if len(versions) > RECENT_ROUNDS:
        oldest = min(versions, key=lambda each: (versions[each].at, versions[each].version))
        del versions[oldest]
        following.deltas.append(Delta("versions", oldest, None))
    following.view = replace(following.view, versions=versions)


def _verdict(following: _Next, fact: Verdict) -> None:
    following.one_more(
        "verdicts",
        Judged(
            fact.worker, fact.file, fact.outcome, fact.code, fact.sentence, fact.validator, fact.rollouts,
            fact.reward, fact.solved, fact.staleness, fact.seen_at,
        ),
    )  # fmt: skip
    sums = following.view.rollouts
    if fact.outcome == "accepted":
        weight = fact.rollouts if fact.reward is not None else 0
        sums = replace(
            sums, accepted=sums.accepted + fact.rollouts, rewarded=sums.rewarded + weight,
            reward_sum=sums.reward_sum + weight * (fact.reward or 0.0),
            solved_sum=sums.solved_sum + weight * (fact.solved or 0.0), as_of=fact.seen_at,
        )  # fmt: skip
    elif fact.outcome == "refused":
        sums = replace(sums, refused=sums.refused + fact.rollouts, as_of=fact.seen_at)
    else:
        sums = replace(sums, undecided=sums.undecided + fact.rollouts, as_of=fact.seen_at)
    following.single("rollouts", sums)


_FOLDS: dict[type[Fact], Callable[[_Next, Any], None]] = {
    Opened: _opened,
    Decided: _decided,
    Reported: _reported,
    Record: _record,
    Gone: _gone,
    Measured: _measured,
    Admitted: _admitted,
    Refused: _refused,
    Evidence: _evidence,
    Acted: _acted,
    Policy: _policy,
    Verdict: _verdict,
}


class _Lenient(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and -(2**53) < value < 2**53 else default
