"""Schedules that chance finds seldom: each is steered to one place of the protocol by what its members say."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from diloco.rounds.planning import leaders
from diloco.rounds.statements import Close, Proposal, Ready, Vote
from protocol.envelope import Sealed
from tests.sim.judge import Broken, Judge
from tests.sim.process import Process
from tests.sim.setting import TIMING, Shape
from tests.sim.world import World


class Steering(Judge):
    """A judge that does something right before a statement leaves its sender."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[Process, Any], None] = lambda process, body: None

    def said(self, process: Process, sealed: Sealed[Any]) -> None:
        """As ``Judge``."""
        super().said(process, sealed)
        self.before(process, sealed.message)


def the_leader_is_cut_off() -> None:
    """Of five voters the first leader is cut off; the four others lose one attempt, and no more."""
    judge = Judge()
    world = World(Shape(voters=5), seed=1, judge=judge)
    world.run(until=60.0, when=lambda: all(p.state is not None for p in world.processes))
    state = world.processes[0].state
    assert state is not None
    first = world.process(state.leader(0))
    rest = [process for process in world.processes if process is not first]
    world.troubled = True
    world.links.cut({(first.name, p.name) for p in rest} | {(p.name, first.name) for p in rest})
    if not world.run(until=100.0, when=lambda: (0, world.start.digest, 0) in judge.decided):
        raise Broken("four of five decide nothing")
    attempt = judge.attempts[0, world.start.digest, 0]
    if attempt > 1:
        raise Broken(f"the next leader decides in attempt {attempt} only")


def the_tie_breaker_leaves_unheard() -> None:
    """Of two voters the tie-breaker leaves, and alone knows the value that says so: the other misses its vote."""
    judge = Steering()
    world = World(Shape(voters=2), seed=1, judge=judge)
    leaver = world.process(world.start.value.tie_breaker)
    (other,) = (process for process in world.processes if process is not leaver)
    cut = {(leaver.name, other.name), (other.name, leaver.name)}

    def unheard(process: Process, body: Any) -> None:
        if process is leaver and leaver.draining and isinstance(body, Close | Vote) and not world.links.cuts:
            world.troubled = True
            world.links.cut(cut)
            world.at(world.now + 8.0, world.links.mend, cut)

    judge.before = unheard
    world.run(until=60.0, when=lambda: min(p.tip.value.round for p in world.processes) >= 1)
    leaver.drain()
    if not world.run(until=60.0, when=lambda: leaver.name in leaver.tip.value.left):
        raise Broken("the leaver cannot leave")
    decided = leaver.tip.value.round
    if other.tip.value.round >= decided:
        raise Broken("the other knows of the value; this scene shows nothing")
    if not world.run(until=120.0, when=lambda: other.tip.value.round > decided + 2):
        raise Broken("the one that stays cannot go on")


def the_tie_breaker_leaves_while_the_other_trains() -> None:
    """Of two voters the tie-breaker leaves long before the other is ready: it waits, and the run goes on without it."""
    world = World(Shape(voters=2, train=15.0), seed=1, judge=Judge())
    leaver = world.process(world.start.value.tie_breaker)
    (other,) = (process for process in world.processes if process is not leaver)
    world.run(until=5.0)
    leaver.drain()
    if not world.run(until=120.0, when=lambda: leaver.left and other.tip.value.round > 2):
        raise Broken("the one that stays cannot go on")


def a_leader_that_lives_is_never_ready() -> None:
    """Of three voters one lives and is never ready, each in turn: its rounds take one deadline, and one attempt."""
    floor, voters = 3.0, 3
    timing = replace(TIMING, floor=timedelta(seconds=floor), attempt=timedelta(seconds=20))
    for number in range(voters):
        judge = Judge()
        world = World(Shape(voters=voters, timing=timing), seed=number, judge=judge)
        other, stuck = world.processes[number - 1], world.processes[number]
        stuck.habits.pace, stuck.disturbed = 1e9, float("inf")
        led = 0
        while led < 2:
            tip, began, goal = other.tip, world.now, other.tip.value.round + 1
            if goal > 60:
                raise Broken(f"{stuck.name} leads too seldom; this scene shows nothing")
            leader, *_ = leaders(world.rules, tip.value)
            led += leader == stuck.name and stuck.name in tip.leases
            world.run(until=began + 60.0, when=lambda: other.tip is not tip)  # noqa: B023
            if judge.attempts.get((0, world.start.digest, goal)) or world.now - began > floor + 2.0:
                raise Broken(f"round {goal}, led by {leader}, took {world.now - began:.1f} s")


def the_second_leader_lives_and_is_never_ready() -> None:
    """Of five voters the first leader is gone, and the second lives and is never ready: attempt 1 decides."""
    judge = Judge()
    world = World(Shape(voters=5), seed=1, judge=judge)
    first, second, *_ = map(world.process, leaders(world.rules, world.start.value))
    second.habits.pace, second.disturbed = 1e9, float("inf")
    world.run(until=0.5)
    first.kill()
    if not world.run(until=100.0, when=lambda: (0, world.start.digest, 0) in judge.decided):
        raise Broken("four of five decide nothing")
    attempt = judge.attempts[0, world.start.digest, 0]
    if attempt != 1:
        raise Broken(f"attempt {attempt} decides")


def a_voter_is_heard_too_late_in_every_other_round() -> None:
    """Of five voters one is heard too late in two rounds, not in the one between: it loses its vote and no step."""
    judge = Steering()
    world = World(Shape(voters=5), seed=1, judge=judge)
    late = world.process("v00")

    def too_late(process: Process, body: Any) -> None:
        if process is late and isinstance(body, Ready) and body.round in (2, 4):
            process.hearers = lambda: set()  # type: ignore[method-assign]
        elif isinstance(body, Proposal):
            vars(late).pop("hearers", None)

    judge.before = too_late
    if not world.run(until=200.0, when=lambda: late.tip.value.round == 8):
        raise Broken("the run stands still")
    values = [link.value for link in late.disk.chain[1:]]
    gave = [value.round for value in values if late.name in {entry.peer for entry in value.roster}]
    votes = [value.round for value in values if late.name in {e.peer for e in value.electorate}]
    if gave != [0, 1, 3, 5, 6, 7, 8] or votes != [0, 1, 2, 3, 5, 6, 7, 8]:
        raise Broken(f"it gave to the rounds {gave}, and had a vote after {votes}")
