"""Rows of docs/failure-modes.md that need many members, and schedules that no real network would give."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from diloco.rounds.state import Timing
from diloco.rounds.statements import Vote
from tests.sim.judge import Judge
from tests.sim.process import Process
from tests.sim.scenes import Steering
from tests.sim.setting import TIMING, Shape
from tests.sim.world import World


def ways(some: list[Process], others: list[Process]) -> set[tuple[str, str]]:
    pairs = {(a.name, b.name) for a in some for b in others}
    return pairs | {(b, a) for a, b in pairs}


def begun(shape: Shape, seed: int, judge: Judge | None = None) -> World:
    """A run that has decided its first round."""
    world = World(shape, seed, judge or Judge())
    assert world.run(until=60.0, when=lambda: all(p.tip.value.round >= 0 for p in world.processes))
    return world


def tie_breaker(world: World) -> Process:
    newest = max((p.tip for p in world.processes), key=lambda tip: tip.value.round)
    return world.process(newest.value.tie_breaker)


@pytest.mark.failure_mode(11, 31)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("minority", (1, 2))
def test_cut_in_two_only_one_side_commits_and_the_other_follows_after_healing(
    minority: int, seed: int
) -> None:
    world = begun(Shape(voters=4), seed)
    world.run(until=world.now + 0.2 * seed)
    breaker = tie_breaker(world)
    weak = [p for p in world.processes if p is not breaker][:minority]
    strong = [p for p in world.processes if p not in weak]
    for process in weak:
        process.disturbed = float("inf")
    cut = ways(strong, weak)
    world.troubled = True
    world.links.cut(cut)
    world.run(until=world.now + 1.0)  # what was on its way arrives
    weak_round = max(p.tip.value.round for p in weak)
    fresh = world.add("v90", seated=True)
    world.links.cut(ways([fresh], strong))
    world.run(until=world.now + 30.0)
    assert max(p.tip.value.round for p in weak) == weak_round, "the side without a quorum decides nothing"
    assert min(p.tip.value.round for p in strong) > weak_round + 5
    assert fresh.tip.value.round <= weak_round
    world.links.calm()
    everyone = {p.name for p in world.processes}

    def together() -> bool:
        tips = {p.tip.digest for p in world.processes}
        return len(tips) == 1 and {e.peer for e in fresh.tip.value.electorate} == everyone

    assert world.run(until=world.now + 120.0, when=together)


@pytest.mark.failure_mode(15)
@pytest.mark.parametrize("seed", range(3))
def test_members_that_start_apart_and_hear_late_are_in_nearly_every_round(seed: int) -> None:
    world = World(Shape(voters=8, train=8.0, timing=Timing()), seed, Judge())
    for process in world.processes:  # each starts anew, somewhen within three seconds
        process.kill()
        world.at(3.0 * world.random.random(), process.boot_up, process.boot)
    world.links.late, world.links.late_by = 0.2, 3.0
    rounds = 40
    assert world.run(until=rounds * 60.0, when=lambda: world.newest[1] >= rounds - 1)
    chain = max((p.disk.chain for p in world.processes), key=len)
    whole = sum(len(certified.value.roster) == 8 for certified in chain[1:])
    assert whole >= 0.95 * rounds


@pytest.mark.failure_mode(30)
@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_certifies_alone_and_sleeps_follows_when_it_wakes(seed: int) -> None:
    judge = Steering()
    world = World(Shape(voters=5), seed, judge)
    first = (0, world.start.digest, 0)

    def only_the_leader_hears_votes(process: Process, body: Any) -> None:
        if isinstance(body, Vote):
            assert process.state is not None
            leader = process.state.leader(body.attempt)
            process.hearers = lambda: set() if process.name == leader else {leader}  # type: ignore[method-assign]

    judge.before = only_the_leader_hears_votes
    assert world.run(until=60.0, when=lambda: first in judge.decided)
    (leader,) = [p for p in world.processes if p.tip.value.round == 0]
    leader.pause()
    judge.before = lambda process, body: None
    for process in world.processes:
        vars(process).pop("hearers", None)
    others = [p for p in world.processes if p is not leader]
    assert world.run(until=120.0, when=lambda: all(p.tip.value.round >= 0 for p in others))
    assert {p.disk.chain[1].digest for p in others} == {judge.decided[first]}
    leader.resume()
    goal = world.newest[1] + 2
    assert world.run(until=200.0, when=lambda: all(p.tip.value.round >= goal for p in world.processes))


@pytest.mark.failure_mode(35)
@pytest.mark.parametrize("seed", (0,))
def test_fifty_free_identities_get_no_vote_and_little_weight(seed: int) -> None:
    judge = Judge()
    world = begun(Shape(voters=5, bandwidth=1e8), seed, judge)
    for number in range(50):
        world.at(
            world.now + 2.0 * world.random.random(), lambda n: world.add(f"w{n:03}", seated=False), number
        )
    goal = world.newest[1] + 6
    assert world.run(until=300.0, when=lambda: world.newest[1] >= goal)
    chain = max((p.disk.chain for p in world.processes), key=len)
    seats = [f"v{i:02}" for i in range(5)]
    assert all([e.peer for e in certified.value.electorate] == seats for certified in chain)
    assert len(chain[-1].value.members) == 50
    together = [entry for certified in chain for entry in certified.value.roster if entry.peer not in seats]
    assert {entry.peer for entry in together} == set(chain[-1].value.members), (
        "they contribute; the judge weighs them"
    )
    assert not judge.lost_steps


@pytest.mark.failure_mode(39)
@pytest.mark.parametrize("seed", range(5))
def test_all_members_that_drain_in_one_second_stop_cleanly(seed: int) -> None:
    world = begun(Shape(voters=5, others=1), seed)
    for process in world.processes:
        world.at(world.now + world.random.random(), process.drain)
    assert world.run(until=world.now + 30.0, when=lambda: all(p.left for p in world.processes))
    tips = {p.tip.digest for p in world.processes}
    assert len(tips) <= 2, "who left first may lack the last value"


@pytest.mark.failure_mode(33)
@pytest.mark.parametrize("count", (2, 5))
def test_a_coordinator_that_is_cut_off_resets_by_itself_with_a_third_of_the_voters_only(count: int) -> None:
    world = begun(Shape(voters=12, coordinators=1), seed=count)
    cut_off, others = world.processes[:count], world.processes[count:]
    world.troubled = True
    world.links.cut(ways(cut_off, others))
    for process in world.processes:
        process.disturbed = float("inf")
    world.run(until=world.now + 60.0)
    epochs = {p.name: p.tip.value.epoch for p in world.processes}
    assert {epochs[p.name] for p in others} == {0} and {epochs[p.name] for p in cut_off} == {int(count == 5)}
    world.links.calm()
    goal = world.newest[1] + 3

    def together() -> bool:
        return (
            len({p.tip.digest for p in world.processes}) == 1 and world.processes[0].tip.value.round >= goal
        )

    assert world.run(until=world.now + 200.0, when=together)
    assert world.processes[0].tip.value.epoch == int(count == 5)


@pytest.mark.failure_mode(21)
def test_a_voter_that_lives_and_is_never_ready_is_waited_for_twice_and_no_more_until_it_contributes() -> None:
    floor = 10.0
    world = begun(Shape(voters=4, timing=replace(TIMING, floor=timedelta(seconds=floor))), seed=3)
    stuck = world.processes[3]
    stuck.habits.pace, stuck.disturbed = 1e9, float("inf")

    def decided(goal: int) -> bool:
        return world.newest[1] >= goal

    def waited(rounds: int) -> int:
        """In how many rounds somebody was waited for."""
        times = [world.now]
        for goal in range(world.newest[1] + 1, world.newest[1] + 1 + rounds):
            assert world.run(until=world.now + 100.0, when=partial(decided, goal))
            times.append(world.now)
        return sum(later - earlier > floor for earlier, later in pairwise(times))

    waited(1)  # that it may have trained for already
    assert waited(12) == 2
    stuck.habits.pace, stuck.share = 1.3, None
    stuck._train()
    assert waited(6) == 0
    assert stuck.name in {entry.peer for entry in world.processes[0].tip.value.roster}
    stuck.habits.pace = 1e9
    assert waited(8) == 2, "who has contributed is waited for again"


@pytest.mark.failure_mode(32)
@pytest.mark.parametrize("seed", range(4))
def test_who_comes_back_after_another_process_voted_with_its_key_keeps_to_that_vote(seed: int) -> None:
    """The other one had an empty disk, and was listed; it dies right after a vote that nobody heard."""
    judge = Steering()
    world = begun(Shape(voters=3), seed, judge)
    first = world.processes[0]
    first.kill()
    other = world.add(first.name, seated=True)
    everyone = ways(world.processes, world.processes)

    def unheard(process: Process, body: Any) -> None:
        if process is other and isinstance(body, Vote) and not world.links.cuts:
            world.links.cut(everyone)

    judge.before = unheard
    assert world.run(until=world.now + 60.0, when=lambda: bool(world.links.cuts))
    number = other.tip.value.round + 1
    world.run(until=world.now + 1.0)
    other.kill()
    other.left = True
    first.boot_up()
    world.links.calm()
    judge.before = lambda process, body: None
    goal = number + 3
    assert world.run(until=world.now + 200.0, when=lambda: first.tip.value.round >= goal)
    listed = [c.value.round for c in first.disk.chain for boot in c.value.boots if boot.peer == first.name]
    assert len(listed) == 3 and listed[-1] >= number, "at the start, the other one, and then this one anew"
