"""Members that vanish at once, for good: which runs go on by themselves, and which need the operator (rule 18)."""

from typing import Any

import pytest

from diloco.rounds.statements import Vote
from tests.sim.judge import Judge
from tests.sim.process import Process
from tests.sim.scenes import Steering
from tests.sim.setting import Shape
from tests.sim.world import World

TWELVE = Shape(voters=12)


def lose(count: int, *, tie_breaker: bool, seed: int) -> tuple[World, Judge, list[Process]]:
    """Twelve voters of which some are killed in the same instant; returns those that live."""
    judge = Judge()
    world = World(TWELVE, seed, judge)
    world.run(until=60.0, when=lambda: world.newest[1] >= 1)
    world.run(until=world.now + 0.3 * seed)
    breaker = world.process(
        max((p.tip for p in world.processes), key=lambda tip: tip.value.round).value.tie_breaker
    )
    lost = [p for p in world.processes if p is not breaker]
    world.random.shuffle(lost)
    lost = lost[:count] if not tie_breaker else [breaker, *lost[: count - 1]]
    for process in lost:
        process.kill()
    return world, judge, world.living()


def goes_on(world: World, living: list[Process], rounds: int = 4) -> bool:
    """Whether all who live decide some more rounds."""
    goal = world.newest[1] + rounds
    within = 60.0 * rounds
    return world.run(until=world.now + within, when=lambda: all(p.tip.value.round >= goal for p in living))


def trained_steps_are_kept(judge: Judge) -> bool:
    return not judge.lost_steps


@pytest.mark.parametrize("tie_breaker", (False, True), ids=("tie-breaker-lives", "tie-breaker-lost"))
@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_loses_five_of_twelve_goes_on_by_itself(tie_breaker: bool, seed: int) -> None:
    world, judge, living = lose(5, tie_breaker=tie_breaker, seed=seed)
    assert goes_on(world, living)
    assert trained_steps_are_kept(judge)
    assert {e.peer for e in living[0].tip.value.electorate} == {p.name for p in living}
    assert all(value.value.epoch == 0 for value in living[0].disk.chain)


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_loses_six_of_twelve_goes_on_by_itself_with_the_tie_breaker(seed: int) -> None:
    world, judge, living = lose(6, tie_breaker=False, seed=seed)
    assert goes_on(world, living)
    assert trained_steps_are_kept(judge)
    assert living[0].tip.value.epoch == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", (6, 8))
def test_a_run_that_loses_six_with_the_tie_breaker_or_eight_goes_on_by_a_reset(count: int, seed: int) -> None:
    world, judge, living = lose(count, tie_breaker=True, seed=seed)
    assert not goes_on(world, living, rounds=1), "what was under way may be decided, but no round after it"
    assert not goes_on(world, living, rounds=1)
    assert world.hopeless()
    assert world.operator.reset(living[0])
    assert goes_on(world, living)
    assert {e.peer for e in living[0].tip.value.electorate} == {p.name for p in living}
    assert living[0].tip.value.epoch == 1
    assert trained_steps_are_kept(judge)


@pytest.mark.parametrize("seed", range(3))
def test_a_reset_goes_on_from_what_the_lost_may_have_seen_certified(seed: int) -> None:
    """The leader alone sees a certificate, and is lost with seven others; those left had voted for it."""
    judge = Steering()
    world = World(TWELVE, seed, judge)
    world.run(until=60.0, when=lambda: world.newest[1] >= 1)
    number = world.newest[1] + 1
    place = (0, world.start.digest, number)

    def only_the_leader_hears_votes_and_nobody_hears_it(process: Process, body: Any) -> None:
        if isinstance(body, Vote) and body.round == number:
            assert process.state is not None
            leader = process.state.leader(body.attempt)
            process.hearers = lambda: set() if process.name == leader else {leader}  # type: ignore[method-assign]
            if process.name == leader:
                world.links.cut({(leader, p.name) for p in world.processes})

    judge.before = only_the_leader_hears_votes_and_nobody_hears_it
    assert world.run(until=world.now + 60.0, when=lambda: place in judge.decided)
    judge.before = lambda process, body: None
    (first,) = [p for p in world.processes if p.tip.value.round == number]
    left = [p for p in world.processes if p is not first and (p.name, 0, number) in judge.votes][:4]
    for process in world.processes:
        vars(process).pop("hearers", None)
        if process not in left:
            process.kill()
    world.links.calm()
    assert not goes_on(world, left, rounds=1)
    assert world.operator.reset(left[0])
    assert goes_on(world, left)
    assert judge.decided[place] in {link.digest for link in left[0].disk.chain}
    first.boot_up()
    assert goes_on(world, [first])
    assert first.tip.value.epoch == 1 and first.disk.chain[: number + 2][-1].digest == judge.decided[place]
