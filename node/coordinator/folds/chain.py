"""What certified values change: tip, rounds, standings, totals."""

from dataclasses import replace

from node.coordinator.facts import Decided, Opened
from node.coordinator.folds.agreement import certify
from node.coordinator.folds.making import INSIDE, Next
from node.coordinator.view import Delta, Member, Round, Run, Tip


def opened(following: Next, fact: Opened) -> None:
    """The run that is followed."""
    run = Run(
        fact.run, fact.name, fact.rounds, fact.policy, fact.operator, fact.start_members, fact.changeable,
        fact.parameters,
    )  # fmt: skip
    following.single("run", run)


def decided(following: Next, fact: Decided) -> None:
    """A round was decided, or an epoch begins."""
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
        certify(following, fact.round - 1, fact.base, fact.seen_at)
    for action in following.view.actions:
        if action.order and action.order in fact.orders:
            taken = replace(action, taken_up=fact.round)
            entries = tuple(
                taken if entry.number == action.number else entry for entry in following.view.actions
            )
            following.view = replace(following.view, actions=entries)
            following.deltas.append(Delta("actions", str(action.number), taken))


def _cut(following: Next, fact: Decided) -> None:
    """An epoch begins: rounds after its beginning never were."""
    rounds = {key: entry for key, entry in following.view.rounds.items() if entry.round <= fact.round}
    gone = [key for key in following.view.rounds if key not in rounds]
    following.view = replace(following.view, rounds=rounds)
    following.deltas.extend(Delta("rounds", key, None) for key in gone)


def _close_round(following: Next, fact: Decided, old: Tip) -> None:
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


def _open_round(following: Next, fact: Decided) -> None:
    if fact.finished:
        return
    number = fact.round + 1
    entry = following.view.rounds.get(str(number)) or Round(number)
    expected = (*fact.electorate, *fact.members)
    following.round(replace(entry, epoch=fact.epoch, began_at=fact.seen_at, expected=expected))


def _stand(following: Next, fact: Decided, old: Tip) -> None:
    """Who has which standing from here on, and what the round means to each."""
    standing = dict.fromkeys(fact.left, "left")
    standing |= dict.fromkeys(fact.ghosts, "ghost") | dict.fromkeys(fact.members, "member")
    standing |= dict.fromkeys(fact.electorate, "voter") | dict.fromkeys(fact.banned, "banned")
    listed = {} if fact.begins else {entry.peer: entry for entry in fact.roster}
    expected = () if fact.begins or old.paused else old.taking_part
    named = standing.keys() | listed.keys() | set(expected)
    for peer in sorted(named | {p for p, m in following.view.members.items() if m.standing in INSIDE}):
        before = following.view.members.get(peer) or Member(peer)
        now = standing.get(peer, "outside" if before.standing in INSIDE else before.standing)
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


def _count(following: Next, fact: Decided) -> None:
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
