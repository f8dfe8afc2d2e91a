"""Published versions, verdicts on rollouts, and how a trainer's rollouts stand."""

from dataclasses import replace

from node.coordinator.facts import Policy, Reported, Verdict
from node.coordinator.folds.making import Next, number, whole
from node.coordinator.view import RECENT_ROUNDS, Delta
from node.coordinator.view_rollouts import Judged, Learning, Version

_LISTED = 64  # validators that are listed at most


def policy(following: Next, fact: Policy) -> None:
    """A published version, or who has how much of it."""
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


def verdict(following: Next, fact: Verdict) -> None:
    """A verdict on rollouts."""
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


def learning(following: Next, fact: Reported) -> None:
    """A trainer says how its rollouts stand."""
    get, old = fact.fields.get, following.view.learning.get(fact.peer) or Learning(fact.peer)
    new = replace(old, as_of=fact.seen_at)
    if fact.kind == "rollouts.queue":
        new = replace(
            new, newest=whole(get("newest"), old.newest), workers=whole(get("workers"), 0),
            working=whole(get("working"), 0), judging=whole(get("judging"), 0), ready=whole(get("ready"), 0),
            free=whole(get("free"), 0), validators=_names(get("validators")), distrusted=_names(get("distrusted")),
        )  # fmt: skip
    elif fact.kind == "rollouts.waiting":
        new = replace(new, waiting=str(get("sentence", "")))
    else:
        behind = get("staleness")
        known = behind if isinstance(behind, dict) else {}
        ages = {str(age): whole(groups, 0) for age, groups in list(known.items())[:_LISTED]}
        new = replace(
            new, waiting="", round=whole(get("round"), old.round), reward=number(get("reward")),
            solved=number(get("solved")), staleness=ages,
        )  # fmt: skip
    following.entry("learning", fact.peer, new)


def _names(value: object) -> tuple[str, ...]:
    return tuple(map(str, value[:_LISTED])) if isinstance(value, list | tuple) else ()
