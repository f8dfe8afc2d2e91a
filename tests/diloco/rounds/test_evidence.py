"""Equivocation is proved by its own signatures, and by nothing less; it costs the seat and nobody else anything."""

from dataclasses import replace
from typing import Any

import pytest

from diloco.reduce.messages import Header
from diloco.rounds.certificate import Certified
from diloco.rounds.events import Arrived, EvidenceCame, Note, Reduce
from diloco.rounds.evidence import Proof, check, contradiction
from diloco.rounds.late import MOST_LATE
from diloco.rounds.machine import advance
from diloco.rounds.statements import Close, Evidence, Pass, Proposal, Ready, Vote
from diloco.rounds.values import parse_value, value_digest
from protocol.envelope import Sealed, unseal
from protocol.errors import NodeError
from protocol.messages import decode, encode
from tests.diloco.rounds.swarm import RUN, Swarm, keyed_verify, storm
from tests.diloco.rounds.test_lies import forged, hear, leads, ready, says

FIVE = ("anna", "bert", "carl", "dora", "emil")
PLACE: dict[str, int] = {"epoch": 0, "round": 3, "attempt": 1}
BOOT = b"b" * 16


def opened(raw: bytes) -> Sealed[Any]:
    return unseal(raw, run=RUN, verifier=keyed_verify)


def vote(value: bytes = b"x" * 32, **more: Any) -> Vote:
    return Vote(**{**PLACE, "value": value, "boot": BOOT, **more})


def report(attempt: int, voted: int, value: bytes = b"", **more: Any) -> Ready:
    """A Ready that reports a vote in attempt ``voted``; -1 for none."""
    return Ready(
        **{**PLACE, "attempt": attempt, "base": b"", "boot": BOOT, "voted_attempt": voted + 1,
           "voted_value": value, **more}
    )  # fmt: skip


def header(digest: bytes = b"d" * 32, **more: Any) -> Header:
    return Header(**{**PLACE, "ownership": 0, "chunk": 7, "included": b"\1", "digest": digest, **more})


GUILTY = {
    "two-votes": (vote(), vote(b"y" * 32)),
    "two-closes": (Close(**PLACE, value=b"x"), Close(**PLACE, value=b"y")),
    "two-proposals": (Proposal(**PLACE, readys=(b"x",)), Proposal(**PLACE, readys=(b"y",))),
    "two-chunks": (header(), header(b"e" * 32)),
    "vote-left-out": (vote(), report(2, -1)),
}
ALSO_GUILTY = {
    "another member included": (header(), header(included=b"\3")),
    "an older vote reported instead": (vote(), report(2, 0, b"older")),
    "another value reported for it": (vote(), report(2, 1, b"another")),
}
HONEST = {
    "the same vote again": (vote(), vote()),
    "the same vote after a restart": (vote(), vote(boot=b"c" * 16)),
    "votes in two attempts": (vote(), vote(b"y" * 32, attempt=2)),
    "votes in two rounds": (vote(), vote(b"y" * 32, round=4)),
    "votes in two epochs": (vote(), vote(b"y" * 32, epoch=1)),
    "the vote reported": (vote(value_digest(b"v")), report(2, 1, b"v")),
    "a later vote reported": (vote(), report(3, 2, b"later")),
    "a Ready of the attempt before the vote": (vote(), report(1, -1)),
    "a Ready of a lower attempt": (vote(), report(0, -1)),
    "a Ready of another process": (vote(), report(2, -1, boot=b"c" * 16)),
    "a Ready of another round": (vote(), report(2, -1, round=4)),
    "a vote of an unknown process": (vote(boot=b""), report(2, -1, boot=b"")),
    "two Readys": (report(1, -1), report(1, -1, tokens=5)),
    "two passes": (Pass(**PLACE, reason="a"), Pass(**PLACE, reason="b")),
    "a chunk under another ownership": (header(), header(b"e" * 32, ownership=1)),
    "a chunk of another attempt": (header(), header(b"e" * 32, attempt=2)),
    "another chunk": (header(), header(b"e" * 32, chunk=8)),
    "Closes of two attempts": (Close(**PLACE, value=b"x"), Close(**{**PLACE, "attempt": 2}, value=b"y")),
    "a vote and a Close": (vote(), Close(**PLACE, value=b"y")),
}


@pytest.mark.parametrize("name", [*GUILTY, *ALSO_GUILTY])
def test_each_kind_is_proved_by_two_statements_in_either_order(name: str) -> None:
    one, other = (says("bert", body) for body in {**GUILTY, **ALSO_GUILTY}[name])
    proof, turned = contradiction(one, other), contradiction(other, one)
    assert proof is not None and turned is not None and proof.evidence == turned.evidence
    assert proof.accused == "bert" and "round 3, attempt 1" in proof.sentence
    assert name in ALSO_GUILTY or proof.evidence.kind == name
    shown = decode(Evidence, encode(proof.evidence))
    assert check(shown, opened) == proof


@pytest.mark.parametrize("name", HONEST)
def test_what_an_honest_member_may_say_proves_nothing(name: str) -> None:
    one, other = (says("bert", body) for body in HONEST[name])
    assert contradiction(one, other) is None and contradiction(other, one) is None
    for kind in GUILTY:
        made_up = Evidence(kind=kind, accused="bert", statements=tuple(sorted((one.raw, other.raw))))
        with pytest.raises(NodeError):
            check(made_up, opened)


def test_two_members_do_not_convict_each_other() -> None:
    one, other = says("bert", GUILTY["two-votes"][0]), says("carl", GUILTY["two-votes"][1])
    assert contradiction(one, other) is None
    for accused in ("bert", "carl"):
        evidence = Evidence(kind="two-votes", accused=accused, statements=(one.raw, other.raw))
        with pytest.raises(NodeError):
            check(evidence, opened)


@pytest.mark.parametrize("change", ["kind", "accused", "a signature", "one statement", "no statement"])
def test_changed_evidence_is_refused(change: str) -> None:
    proof = contradiction(*(says("bert", body) for body in GUILTY["two-votes"]))
    assert proof is not None
    one, other = proof.evidence.statements
    changed = {
        "kind": replace(proof.evidence, kind="two-closes"),
        "accused": replace(proof.evidence, accused="carl"),
        "a signature": replace(proof.evidence, statements=(one[:3] + bytes((one[3] ^ 1,)) + one[4:], other)),
        "one statement": replace(proof.evidence, statements=(one,)),
        "no statement": replace(proof.evidence, statements=()),
    }[change]
    with pytest.raises(NodeError):
        check(changed, opened)


# ---- in a run


def chain(swarm: Swarm, name: str) -> list[Certified]:
    return swarm.nodes[name].disk.chain


def voters(certified: Certified) -> set[str]:
    return {elector.peer for elector in certified.value.electorate}


def goes_on_without(swarm: Swarm, liar: str) -> None:
    """The liar loses its seat within two rounds, stays a member, and the others decide all rounds."""
    swarm.liars.add(liar)
    witness = next(name for name in FIVE if name != liar)
    begun = swarm.nodes[witness].state.round
    swarm.run(until=swarm.now + 600, when=lambda: all(node.state.finished for node in swarm.live()))
    assert all(node.state.finished for node in swarm.live())
    after = [certified for certified in chain(swarm, witness) if certified.value.round >= begun + 2]
    assert after
    for certified in after:
        assert liar not in voters(certified) and liar in certified.value.unseated
        assert voters(certified) == set(FIVE) - {liar}
    assert {proof.accused for _, proof in swarm.accusations} == {liar}
    swarm.check()


def test_who_votes_twice_loses_its_seat_and_may_contribute() -> None:
    swarm = Swarm(FIVE, rounds=6)
    followers = [name for name in FIVE if name != leads(swarm, 0)]
    swarm.run(when=lambda: any(swarm.nodes[name].votes for name in followers))
    (liar,) = (name for name in followers if swarm.nodes[name].votes)
    lie = Vote(epoch=0, round=0, attempt=0, value=b"other" * 6, boot=swarm.nodes[liar].state.boot)
    for name in FIVE:
        hear(swarm, name, liar, lie)
    goes_on_without(swarm, liar)
    last = chain(swarm, leads(swarm, 0))[-1].value
    assert last.members == (liar,)
    assert liar in {entry.peer for entry in last.roster}


def test_evidence_that_one_member_got_is_shown_to_all_by_its_proposal() -> None:
    swarm = Swarm(FIVE, rounds=6)
    swarm.run(when=lambda: swarm.nodes["anna"].state.round == 1)
    proof = contradiction(*(says("carl", body) for body in GUILTY["two-votes"]))
    assert proof is not None
    for name in FIVE:
        if name != "carl":
            swarm.feed(name, EvidenceCame(proof))
    goes_on_without(swarm, "carl")


def test_a_leader_that_asks_for_votes_on_two_values_is_convicted_and_one_of_them_is_decided_at_most() -> None:
    swarm = Swarm(FIVE, rounds=6)
    leader = leads(swarm, 0)
    swarm.liars.add(leader)
    swarm.run(when=lambda: bool(swarm.nodes[leader].state.ballot))
    node = swarm.nodes[leader]
    assert node.state.ballot is not None
    honest = [name for name in FIVE if name != leader]
    other = Close(epoch=0, round=0, attempt=0, value=forged(node.state))
    swarm.run(when=lambda: all(0 in swarm.nodes[name].state.closes for name in honest))
    for name in honest:
        hear(swarm, name, leader, other)
    goes_on_without(swarm, leader)


def test_a_leader_that_makes_two_proposals_is_convicted() -> None:
    swarm = Swarm(FIVE, rounds=6)
    leader = leads(swarm, 0)
    honest = [name for name in FIVE if name != leader]
    swarm.run(when=lambda: all(swarm.nodes[name].state.proposal is not None for name in honest))
    first = swarm.nodes[honest[0]].state.proposal
    assert first is not None
    for name in honest:
        hear(swarm, name, leader, replace(first.message, readys=first.message.readys[:3]))
    goes_on_without(swarm, leader)


def test_who_leaves_its_vote_out_of_a_later_ready_is_convicted() -> None:
    swarm = Swarm(FIVE, rounds=6)
    swarm.run(when=lambda: bool(swarm.nodes["dora"].votes) and leads(swarm, 0) != "dora")
    state = swarm.nodes["dora"].state
    honest = [name for name in FIVE if name != "dora"]
    swarm.run(when=lambda: all(_has_vote(swarm, name, "dora") for name in honest))
    for name in honest:
        hear(swarm, name, "dora", ready(state, attempt=1, boot=state.boot))
    goes_on_without(swarm, "dora")


@pytest.mark.parametrize("kind", ["two-votes", "two-closes", "two-proposals", "vote-left-out"])
@pytest.mark.parametrize("first_too", [False, True], ids=["one before", "both after"])
def test_what_contradicts_itself_after_its_round_was_decided_costs_the_seat_too(
    kind: str, first_too: bool
) -> None:
    swarm = Swarm(FIVE, rounds=6)
    leader = leads(swarm, 0)
    liar = leader if kind in ("two-closes", "two-proposals") else next(n for n in FIVE if n != leader)
    honest = [name for name in FIVE if name != liar]
    boot = swarm.nodes[liar].state.boot
    own = kind in ("two-closes", "two-proposals") and not first_too  # its first one is what it really said
    place = {"epoch": 0, "round": 0, "attempt": 0 if own else 5}
    voted = Vote(**place, value=b"y" * 32, boot=boot)
    first, second = {
        "two-votes": (voted, Vote(**place, value=b"x" * 32, boot=boot)),
        "two-closes": (Close(**place, value=b"y"), Close(**place, value=b"x")),
        "two-proposals": (Proposal(**place, readys=(b"y",)), Proposal(**place, readys=(b"x",))),
        "vote-left-out": (voted, Ready(**{**place, "attempt": 9}, base=b"", boot=boot)),
    }[kind]

    def tell(lie: Any) -> None:
        for name in honest:
            hear(swarm, name, liar, lie)

    if not first_too and not own:
        tell(first)
    swarm.run(when=lambda: all(node.state.round == 1 for node in swarm.live()))
    if first_too:
        tell(first)
    assert not any(swarm.nodes[name].state.evidence for name in honest)
    tell(second)
    assert all(liar in swarm.nodes[name].state.evidence for name in honest)
    goes_on_without(swarm, liar)


def test_late_statements_that_are_kept_are_few() -> None:
    swarm = Swarm(FIVE, rounds=6)
    swarm.run(when=lambda: all(node.state.round == 1 for node in swarm.live()))
    before = swarm.nodes["anna"].state.past.said["bert"]
    for attempt in range(10, 40):
        hear(swarm, "anna", "bert", vote(round=0, attempt=attempt))
    past = swarm.nodes["anna"].state.past
    assert len(past.said["bert"]) == len(before) + MOST_LATE
    assert past.hear(says("zoe", vote(round=0))) == (past, None), "a stranger's word is nothing"


def _has_vote(swarm: Swarm, name: str, of: str) -> bool:
    state = swarm.nodes[name].state
    return any(of in held for held in state.votes.values()) or state.round > 0


def test_two_values_reported_for_one_attempt_convict_the_leader_that_asked_for_both() -> None:
    swarm = Swarm(FIVE, rounds=6)
    first, second = leads(swarm, 0), leads(swarm, 1)
    others = [name for name in FIVE if name not in (first, second)]
    swarm.run(when=lambda: all(swarm.nodes[name].state.said == 0 for name in FIVE))
    swarm.kill(first)
    state = swarm.nodes[second].state
    for number, name in enumerate(others[:2]):
        data = encode(replace(parse_value(forged(state)), cursor=number))
        close = says(first, Close(epoch=0, round=0, attempt=0, value=data)).raw
        report_of = ready(
            state, attempt=1, boot=swarm.nodes[name].state.boot, voted_attempt=1, voted_value=data,
            voted_close=close,
        )  # fmt: skip
        swarm.nodes[name].alive = False
        hear(swarm, second, name, report_of)
    hear(swarm, second, others[2], ready(state, attempt=1, boot=swarm.nodes[others[2]].state.boot))
    swarm.run(until=swarm.now + 60, when=lambda: bool(swarm.accusations))
    ((who, proof),) = swarm.accusations
    assert (who, proof.accused, proof.evidence.kind) == (second, first, "two-closes")


def test_a_proposal_with_evidence_that_proves_nothing_is_refused() -> None:
    swarm = Swarm(FIVE, rounds=2)
    leader = leads(swarm, 0)
    swarm.run(when=lambda: swarm.nodes[leader].state.proposed == 0)
    proposal = next(s.message for k, s in swarm.nodes[leader].said.items() if k[0] is Proposal)
    listener = swarm.nodes[next(name for name in FIVE if name != leader)]
    made_up = Evidence(kind="two-votes", accused="emil", statements=(says("emil", vote()).raw,) * 2)
    bad = says(leader, replace(proposal, evidence=(encode(made_up),)))
    after, effects = advance(listener.state, Arrived(bad), swarm.now)
    assert after.proposal is None
    assert [effect.kind for effect in effects if isinstance(effect, Note)] == ["proposal.refused"]


@pytest.mark.parametrize("seed", range(6))
def test_nobody_is_accused_in_storms_of_loss_kills_and_restarts(seed: int) -> None:
    swarm = storm(5, 100 + seed)
    assert swarm.accusations == []


def test_evidence_against_one_who_has_no_seat_is_not_kept() -> None:
    swarm = Swarm(FIVE[:3], rounds=2)
    proof = contradiction(*(says("zoe", body) for body in GUILTY["two-votes"]))
    assert isinstance(proof, Proof)
    swarm.feed("anna", EvidenceCame(proof))
    assert swarm.accusations == [] and not swarm.nodes["anna"].state.evidence


def test_who_restarts_signs_no_chunk_again_in_an_attempt_that_it_had_promised() -> None:
    swarm = Swarm(FIVE, rounds=2)
    leader = leads(swarm, 0)
    owner = next(name for name in FIVE if name != leader)
    swarm.run(when=lambda: swarm.nodes[owner].state.plan is not None)
    proposal = swarm.nodes[owner].state.proposal
    assert proposal is not None
    swarm.kill(owner)
    swarm.restart(owner)
    state = swarm.nodes[owner].state
    assert state.recovered == 0 and state.promised == 0
    after, effects = advance(state, Arrived(proposal), swarm.now)
    assert after.plan is not None, "it may still vote in this attempt"
    assert not [effect for effect in effects if isinstance(effect, Reduce)]
    swarm.run(until=600)
    assert all(node.state.finished for node in swarm.nodes.values())
    swarm.check()
