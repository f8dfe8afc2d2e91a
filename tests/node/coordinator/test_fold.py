"""The view is a fold over facts, and its deltas lead from one view to the next."""

import json
from dataclasses import replace

from node.coordinator.facts import Acted, Contribution, Decided, Evidence, Refused, Reported
from node.coordinator.facts_json import from_json, kind_of, to_json
from node.coordinator.fold import fold, replay
from node.coordinator.view import View
from node.coordinator.view_json import applied, plain, snapshot
from tests.node.coordinator.sample import START, history, one_round, opening, peer, report


def test_facts_survive_their_json() -> None:
    for fact in history(2):
        assert from_json(kind_of(fact), to_json(fact)) == replace_lists(fact)


def replace_lists(fact: object) -> object:
    return from_json(kind_of(fact), to_json(fact)) if hasattr(fact, "fields") else fact  # type: ignore[arg-type]


def test_who_applies_every_delta_holds_the_next_view() -> None:
    view, held = View(), snapshot(View())
    facts = [
        *history(70),
        Acted(seen_at=START, number=1, actor="op", action="ban", peer=peer(1), reason="x", order=5),
        Refused(seen_at=START, peer=peer(2), what="admission", reason="no"),
        Evidence(seen_at=START, accused=peer(2), kind="equivocation"),
        replace(
            next(fact for fact in one_round(70) if isinstance(fact, Decided)), orders=(5,), banned=(peer(1),)
        ),
        Decided(seen_at=START + 9000, epoch=1, round=69, begins=True, electorate=(peer(0),)),
    ]
    for fact in facts:
        view, deltas = fold(view, fact)
        for delta in deltas:
            applied(held, json.loads(json.dumps(plain(delta))))
    now = snapshot(view)
    assert held == now | {"sequence": 0}
    assert view.actions[0].taken_up == 70
    assert view.members[peer(2)].tally.strikes == 1


def test_a_decided_round_counts_for_those_that_its_roster_lists_and_is_late_for_the_others() -> None:
    view = replay([*opening(), *one_round(0), *one_round(1, absent=(2,))])
    assert view.tip.round == 1
    assert view.members[peer(0)].tally.accepted == 2
    assert view.members[peer(2)].tally.accepted == 1
    assert view.members[peer(2)].tally.late == 1
    assert view.members[peer(0)].standing == "voter"
    assert view.totals.rounds == 2
    assert view.totals.verified == 5 * 18_000 and view.totals.claimed == 5 * 20_000


def test_what_a_member_says_of_itself_gives_it_no_credits() -> None:
    boast = report(
        peer(0), 99, START + 5, "train.end", round=0, steps=1, tokens=10**12, seconds=1.0, loss=1.0
    )
    view = replay([*opening(), boast])
    assert view.members[peer(0)].tally.verified == 0 and view.totals.tokens == 0


def test_chunks_that_lack_a_contribution_are_not_credited() -> None:
    assert Contribution("p", 1000, 2000, included=0.5).verified == 500


def test_agreement_names_who_holds_another_state_and_since_when() -> None:
    facts = [*opening(), *one_round(0)]
    odd = report(peer(2), 50, START + 55, "apply", round=1, digest="other", seconds=1.0)
    view = replay([*facts, odd])
    assert view.agreement.dissenters == (peer(2),) and view.agreement.first_divergent == 0
    assert (view.agreement.agree, view.agreement.said, view.agreement.certified) == (2, 3, False)
    view = replay([*facts, odd, *one_round(1)])
    assert view.agreement.dissenters == () and view.agreement.first_divergent == 0


def test_a_round_keeps_the_time_line_of_each_member() -> None:
    view = replay(history(1))
    marks = view.rounds["0"].marks[peer(1)]
    assert list(marks) == ["compute", "computed", "encoded", "ready", "reduce", "reduced", "voted", "applied"]
    assert marks["compute"] == START + 1
    assert view.rounds["0"].sent[peer(1)] == 1_000_000


def test_old_values_change_nothing() -> None:
    facts = history(3)
    view = replay(facts)
    again, deltas = fold(view, next(fact for fact in facts if isinstance(fact, Decided) and fact.round == 1))
    assert deltas == () and again.tip == view.tip


def test_fields_of_the_wrong_type_are_left_out() -> None:
    strange = {
        "round": "x",
        "loss": [1],
        "until": "soon",
        "missing": 3,
        "roles": {"a": 1},
        "tokens": None,
        "total": {},
    }
    for kind in (
        "node.phase",
        "train.end",
        "train.step",
        "bytes",
        "apply",
        "node.start",
        "evaluation",
        "halted",
    ):
        replay([*opening(), report(peer(0), 1, START, kind, **strange)])


def test_what_a_member_does_before_the_decision_is_seen_here_is_in_the_next_rounds_time_line() -> None:
    early = report(peer(0), 60, START + 49, "train.begin", round=1, start=0, count=1)
    rounds = list(one_round(0))
    view = replay([*opening(), *rounds[:20], early, *rounds[20:]])
    assert view.rounds["1"].marks[peer(0)]["compute"] == START + 49
    far = replay([*opening(), report(peer(0), 60, START, "train.begin", round=10**6)])
    assert set(far.rounds) == {"0"}


def test_bytes_from_before_the_coordinator_came_are_no_rounds() -> None:
    late = [fact for fact in history(3) if not (isinstance(fact, Reported) and fact.kind == "node.start")]
    view = replay(late)
    assert view.rounds["0"].sent == {}
    assert view.rounds["1"].sent[peer(1)] == 1_000_000
    again = [
        report(peer(1), 1, START + 200, "node.start", name="again"),
        report(peer(1), 2, START + 230, "bytes", round=4, rounds=700, state=0, total=3_000),
    ]
    view = replay([*one_round(3, absent=(1,)), *again], view)
    assert view.rounds["3"].sent[peer(1)] == 700 and view.members[peer(1)].figures.rate is not None
    assert view.members[peer(1)].figures.rate.value == 3_000 / 30


def test_what_others_saw_when_they_called_a_node_back_is_shown() -> None:
    said = f"{peer(1)} sees this node as 203.0.113.9 and cannot call back (no answer within 3 s): a relay is used."
    view = replay([
        *opening(), report(peer(0), 1, START, "node.reach", reach="tunnel", host="", seen="203.0.113.9", sentence=said),
        *one_round(0),
    ])  # fmt: skip
    who = view.members[peer(0)].who
    assert (who.reach, who.seen, who.reachability) == ("tunnel", "203.0.113.9", said)
