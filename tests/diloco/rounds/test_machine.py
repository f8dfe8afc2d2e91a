"""The round machine decides rounds, through faults, without ever deciding one twice."""

from dataclasses import replace

import pytest

from diloco.rounds import planning
from diloco.rounds.planning import make_value
from diloco.rounds.roster import make_plan
from diloco.rounds.statements import Ready
from diloco.rounds.values import Lease, ReducedChunk
from tests.diloco.rounds.swarm import Swarm

FIVE = ("anna", "bert", "carl", "dora", "emil")


def rounds_done(swarm: Swarm) -> list[int]:
    return [node.state.round for node in swarm.live()]


def test_five_members_decide_every_round_with_everyone_in_it() -> None:
    swarm = Swarm(FIVE, rounds=6)
    swarm.run(until=600)
    assert rounds_done(swarm) == [6] * 5
    for certified in swarm.nodes["anna"].disk.chain[1:]:
        assert [entry.peer for entry in certified.value.roster] == list(FIVE)
        assert certified.attempt == 0
    swarm.check()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_small_runs_decide_too(count: int) -> None:
    swarm = Swarm(FIVE[:count], rounds=4)
    swarm.run(until=600)
    assert rounds_done(swarm) == [4] * count
    swarm.check()


@pytest.mark.parametrize("victim", FIVE)
@pytest.mark.parametrize("when", [3.0, 5.5, 6.2, 6.9, 7.4, 7.9, 8.5, 20.0])
def test_one_killed_member_costs_no_round(victim: str, when: float) -> None:
    swarm = Swarm(FIVE, rounds=5, seed=int(when * 10))
    swarm.run(until=when)
    swarm.kill(victim)
    swarm.run(until=600)
    assert rounds_done(swarm) == [5] * 4
    swarm.check()


def test_a_killed_member_leaves_the_electorate_after_two_values() -> None:
    swarm = Swarm(FIVE, rounds=6)
    swarm.run(until=3)
    swarm.kill("carl")
    swarm.run(until=600)
    chain = swarm.nodes["anna"].disk.chain
    voters = [[e.peer for e in c.value.electorate] for c in chain]
    assert "carl" in voters[1] and "carl" not in voters[2]
    assert all(lease.peer != "carl" for lease in chain[2].value.leases)


def test_a_joiner_votes_and_contributes_from_the_next_round_on() -> None:
    swarm = Swarm(FIVE[:4], rounds=6)
    swarm.run(when=lambda: swarm.nodes["anna"].state.round == 2)
    donor = swarm.nodes["anna"].disk
    swarm.add("emil", donor.chain, donor.states)
    swarm._tick("emil")
    swarm.run(until=600)
    chain = donor.chain
    rosters = {c.value.round: [entry.peer for entry in c.value.roster] for c in chain[1:]}
    assert "emil" not in rosters[2] and "emil" in rosters[3]
    assert rounds_done(swarm) == [6] * 5
    swarm.check()


def test_a_drainer_is_named_as_leaving_and_its_lease_is_given_to_others() -> None:
    swarm = Swarm(FIVE, rounds=5)
    swarm.run(when=lambda: swarm.nodes["bert"].state.round == 1)
    swarm.leave("bert")
    swarm.run(until=600)
    chain = swarm.nodes["anna"].disk.chain
    assert any("bert" in c.value.left for c in chain)
    assert all(e.peer != "bert" for e in chain[-1].value.electorate)
    swarm.check()


def test_a_member_that_never_gets_ready_is_left_out_after_one_deadline() -> None:
    swarm = Swarm(FIVE, rounds=4)
    swarm.train_time = lambda name, r: 1e6 if name == "dora" else 5.0
    for name in FIVE:
        swarm.restart(name)
    swarm.run(until=2000)
    assert rounds_done(swarm)[0] == 4
    assert all(entry.peer != "dora" for c in swarm.nodes["anna"].disk.chain for entry in c.value.roster)


@pytest.mark.failure_mode(31)
@pytest.mark.parametrize("seed", range(12))
def test_a_cut_in_two_halves_lets_at_most_one_side_decide(seed: int) -> None:
    swarm = Swarm(FIVE[:4], rounds=8, seed=seed)
    left = {"anna", "bert"}
    swarm.run(until=3 + seed)
    swarm.cut = lambda a, b: (a in left) != (b in left)
    swarm.run(until=200)
    swarm.check()
    swarm.cut = lambda a, b: False
    swarm.run(until=2000)
    assert rounds_done(swarm) == [8] * 4
    swarm.check()


@pytest.mark.failure_mode(31)
@pytest.mark.parametrize("seed", range(12))
def test_of_two_halves_exactly_the_one_with_the_tie_breaker_goes_on_whatever_attempt_they_are_in(
    seed: int,
) -> None:
    swarm = Swarm(FIVE[:4], rounds=8, seed=seed)
    names = swarm.random.sample(FIVE[:4], 4)
    sides = [set(names[:2]), set(names[2:])]

    def cut(a: str, b: str) -> bool:
        return (a in sides[0]) != (b in sides[0])

    swarm.run(until=3 + seed)
    for window in range(6):  # whoever leads, a short meeting and no decision: both go to higher attempts
        swarm.cut = cut if window % 2 == 0 else (lambda a, b: False)
        swarm.run(until=swarm.now + (20 if window % 2 == 0 else 0.2))
    swarm.cut = cut
    swarm.run(until=swarm.now + 1)
    newest = max((node.state.value for node in swarm.live()), key=lambda value: value.round)
    voters = {elector.peer for elector in newest.electorate}
    swarm.run(until=swarm.now + 600)
    swarm.check()
    done = [{swarm.nodes[name].state.round for name in side} for side in sides]
    deciding = [
        len(side & voters) * 2 > len(voters)
        or (len(side & voters) * 2 == len(voters) and newest.tie_breaker in side)
        for side in sides
    ]
    assert sorted(deciding) == [False, True]
    for decides, rounds in zip(deciding, done, strict=True):
        assert (rounds == {8}) == decides and (decides or max(rounds) <= newest.round + 1)


@pytest.mark.failure_mode(30)
@pytest.mark.parametrize("seed", range(40))
def test_storms_of_loss_kills_and_restarts_never_split_the_chain(seed: int) -> None:
    swarm = Swarm(FIVE, rounds=6, seed=seed, loss=0.15)
    down: list[str] = []

    def storm() -> None:
        if down and swarm.random.random() < 0.5:
            swarm.restart(down.pop())
        elif len(down) < 2:
            victim = swarm.random.choice([n for n in FIVE if n not in down])
            swarm.kill(victim)
            down.append(victim)
        if swarm.now < 150:
            swarm.at(swarm.now + 2 + 8 * swarm.random.random(), storm)
        else:
            for name in list(down):
                swarm.restart(name)
            down.clear()
            swarm.loss = 0.0

    swarm.at(4.0, storm)
    swarm.run(
        until=3000, when=lambda: swarm.now > 170 and all(n.state.finished for n in swarm.nodes.values())
    )
    swarm.check()
    assert all(node.state.finished for node in swarm.nodes.values()), rounds_done(swarm)


@pytest.mark.failure_mode(7)
@pytest.mark.parametrize("when", [0.0, 0.3, 0.8, 1.2, 1.6])
def test_the_leader_dies_and_the_round_is_decided_within_two_attempts(when: float) -> None:
    swarm = Swarm(FIVE, rounds=3, seed=int(when * 100))
    leader = swarm.nodes["anna"].state.leader(0)
    swarm.run(when=lambda: swarm.nodes[leader].state.proposed >= 0)
    swarm.run(until=swarm.now + when)
    swarm.kill(leader)
    swarm.run(until=600)
    chain = next(n for n in swarm.live()).disk.chain
    assert len(chain) == 4 and chain[1].attempt <= 1
    swarm.check()


@pytest.mark.failure_mode(32)
def test_a_member_killed_between_vote_and_certificate_does_not_vote_twice() -> None:
    swarm = Swarm(FIVE, rounds=3, seed=5)
    swarm.run(when=lambda: bool(swarm.nodes["carl"].votes))
    swarm.kill("carl")
    swarm.restart("carl")
    swarm.run(until=600)  # the swarm itself asserts that nobody gives two votes in one attempt
    assert rounds_done(swarm) == [3] * 5
    swarm.check()


def test_a_member_without_a_seat_may_be_late_once_and_keeps_its_lease() -> None:
    swarm = Swarm(FIVE[:3], rounds=6)
    state = swarm.nodes["anna"].state
    leased = Lease(peer="gerd", start=900, count=8)
    tip = replace(state.value, members=("gerd",), leases=(*state.value.leases, leased), cursor=908)
    listed = {name: Ready(epoch=0, round=0, attempt=0, base=tip.base) for name in FIVE[:3]}
    plan = make_plan(state.rules, tip, listed)
    assert plan is not None
    once = make_value(state.rules, tip, state.tip.digest, plan, 0, ())
    assert (once.members, once.late) == (("gerd",), ("gerd",))
    assert leased in once.leases
    twice = make_value(state.rules, once, state.tip.digest, plan, 0, ())
    assert (twice.members, twice.late) == ((), ())
    assert all(lease.peer != "gerd" for lease in twice.leases)


@pytest.mark.parametrize("why", ["beacon", "quorum", "order"])
def test_a_voter_that_loses_its_vote_while_it_is_absent_for_the_first_time_keeps_its_lease(why: str) -> None:
    swarm = Swarm(FIVE, rounds=6)
    state = swarm.nodes["anna"].state
    tip, digest = state.value, state.tip.digest
    said = Ready(epoch=0, round=0, attempt=0, base=tip.base, beacon_commitment=b"c" * 32)
    listed = dict.fromkeys(FIVE[:4], said)
    if why == "beacon":
        *others, emil = tip.electorate
        emil = replace(emil, withheld=1, beacon_commitment=b"e" * 32)
        tip = replace(tip, electorate=(*others, emil))
    elif why == "quorum":  # those that stay are none of three
        tip = replace(tip, tie_breaker="anna")
        del listed["dora"]
        for name in ("bert", "carl"):
            listed[name] = replace(listed[name], leaving=True)
    else:
        tip = replace(tip, unseated=("emil",))
    leased = tip.leases[-1]
    assert leased.peer == "emil"

    plan = make_plan(swarm.rules, tip, listed)
    assert plan is not None
    once = make_value(swarm.rules, tip, digest, plan, 0, ())
    assert "emil" not in {e.peer for e in once.electorate}
    assert "emil" in once.members and "emil" in once.late and leased in once.leases
    again = {e.peer: listed[e.peer] for e in once.electorate}
    back = make_plan(swarm.rules, once, again | {"emil": replace(said, admission=b"admit emil")})
    assert back is not None
    value = make_value(swarm.rules, once, digest, back, 0, ())
    assert leased in value.leases and not value.late
    assert ("emil" in {e.peer for e in value.electorate}) == (why != "order")
    gone = make_plan(swarm.rules, once, again)
    assert gone is not None
    assert leased not in make_value(swarm.rules, once, digest, gone, 0, ()).leases


@pytest.mark.parametrize("fragments", [2, 3])
def test_each_round_is_the_slot_of_one_fragment_and_a_slot_opens_after_the_one_before(fragments: int) -> None:
    swarm = Swarm(FIVE, rounds=2 * fragments + 1, seed=fragments, loss=0.1, fragments=fragments)
    swarm.run(until=8.0)
    swarm.kill("bert")
    swarm.run(until=30.0)
    swarm.restart("bert")
    swarm.run(until=2000)
    chain = [certified.value for certified in swarm.nodes["anna"].disk.chain[1:]]
    assert rounds_done(swarm) == [2 * fragments + 1] * 5
    covered = [tuple(swarm.rules.slot(value.round)) for value in chain]
    assert all(len(value.chunks) == len(chunks) for value, chunks in zip(chain, covered, strict=True))
    assert [chunk for chunks in covered[:fragments] for chunk in chunks] == [0, 1, 2]
    assert covered[fragments] == covered[0], "and then the first again"
    swarm.check()


def test_a_value_with_chunks_that_nobody_gave_is_none() -> None:
    swarm = Swarm(FIVE[:3], rounds=3)
    swarm.run(when=lambda: swarm.nodes["anna"].state.plan is not None)
    state = swarm.nodes["anna"].state
    assert state.plan is not None
    chunk = ReducedChunk(digest=b"d" * 32, included=b"\7")
    for plan, chunks in (
        (replace(state.plan, roster=(), owners=()), (chunk,) * 3),
        (state.plan, (chunk,) * 2),
    ):
        with pytest.raises(ValueError, match="chunks"):
            planning.make_value(swarm.rules, state.value, state.tip.digest, plan, 0, chunks)


def test_a_leader_that_is_not_ready_at_the_deadline_leads_without_a_part_and_keeps_what_it_trained() -> None:
    swarm = Swarm(FIVE[:3], rounds=3)
    leader = swarm.nodes["anna"].state.leader(0)
    swarm.train_time = lambda name, r: 20.0 if name == leader else 1.0
    for name in FIVE[:3]:
        swarm.restart(name)
    here = swarm.nodes[leader]
    swarm.run(when=lambda: here.state.round == 1)
    assert swarm.now < swarm.timing.floor.total_seconds() + 5
    first = here.disk.chain[1]
    assert first.attempt == 0 and [entry.peer for entry in first.value.roster] == sorted(
        {*FIVE[:3]} - {leader}
    )
    swarm.run(until=2000)
    assert any(leader in [entry.peer for entry in c.value.roster] for c in here.disk.chain[2:])
    swarm.check()


def test_a_leader_that_is_ready_right_after_the_deadline_does_not_leave_itself_out() -> None:
    swarm = Swarm(FIVE[:3], rounds=2)
    leader = swarm.nodes["anna"].state.leader(0)
    late = swarm.timing.floor.total_seconds() + 0.02
    swarm.train_time = lambda name, r: late if name == leader else 1.0
    swarm.run(until=0.01)  # ticks come at every half of a second
    for name in FIVE[:3]:
        swarm.restart(name)
    here = swarm.nodes[leader]
    swarm.run(when=lambda: here.state.round == 1)
    (first,) = here.disk.chain[1:2]
    assert first.attempt == 0 and leader in [entry.peer for entry in first.value.roster]
