"""One seed: the storm, then peace, then every living member goes on; judged after every event."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from diloco.rounds.waiting import waiting
from protocol.errors import NodeError
from tests.sim.faults import Fault, apply
from tests.sim.judge import Broken, Judge
from tests.sim.schedule import STORM, Schedule
from tests.sim.world import World

ROUNDS_OF_PEACE = 3
"""Rounds that everyone alive decides after the last fault."""

PATIENCE = 240.0
"""Simulated seconds of peace in which they do."""

ATTEMPTS = 2
"""Attempts that a round takes at most once attempts have met, beside those led by voters that cannot lead."""


@dataclass(frozen=True)
class Played:
    """What came of a schedule.

    Attributes:
        schedule: The schedule.
        broken: The invariant that did not hold, empty when all did.
        events: Events that machines took.
        rounds: Rounds decided.
        attempts: Attempts of these rounds together.
        seconds: Simulated seconds.
        happened: How often what happened, see ``Judge``.
    """

    schedule: Schedule
    broken: str
    events: int
    rounds: int
    attempts: int
    seconds: float
    happened: Counter[str]


def play(schedule: Schedule, judge: Judge | None = None) -> Played:
    """Run a schedule to its end or to the first invariant that does not hold."""
    judge = judge or Judge()
    world = World(schedule.shape, schedule.seed, judge)
    broken = ""
    try:
        storm(world, schedule.faults)
        peace(world, judge)
    except (Broken, NodeError, ValueError, AssertionError, KeyError) as error:
        broken = f"{type(error).__name__}: {error}" if not isinstance(error, Broken) else str(error)
    attempts = sum(attempt + 1 for attempt in judge.attempts.values())
    return Played(schedule, broken, world.events, len(judge.attempts), attempts, world.now, judge.happened)


def storm(world: World, faults: Sequence[Fault]) -> None:
    """Let everything go wrong that the schedule names."""
    for fault in faults:
        world.at(fault.at, apply, world, fault)
    world.run(until=STORM + 1.0)


def peace(world: World, judge: Judge) -> None:
    """Everything that can be mended is; then the run has to go on."""
    world.mend()
    living = [p for p in world.living() if not p.draining]
    goal = world.newest[1] + ROUNDS_OF_PEACE
    began = world.now

    def there() -> bool:
        here = [p for p in living if p.alive and not p.draining]
        decided = all(p.state is not None and p.state.round > goal for p in here)
        return decided and len({(p.disk.reached, p.disk.base) for p in here}) == len(
            {p.disk.reached for p in here}
        )

    if not living:
        return
    world.at(began + 5.0, rescue, world)
    if not world.run(until=began + PATIENCE, when=there):
        banned = max((p.tip.value for p in living), key=lambda value: (value.epoch, value.round)).banned
        if all(p.left or not p.seated or p.tip is world.start or p.name in banned for p in world.processes):
            return  # all who had the run have left it, or have to
        if world.wiped and not any(p.disk.reached > world.newest[1] for p in world.processes):
            return  # so have all disks that had the state after the last decided round
        late = {p.name: (p.state.round, p.state.attempt) if p.state else None for p in living}
        raise Broken(f"{PATIENCE:.0f} s after the last fault not everyone has decided round {goal}: {late}")
    check_attempts(world, judge, began)


def rescue(world: World) -> None:
    """A person looks after the run: where no quorum is left a new epoch begins, what is paused goes on."""
    here = [p for p in world.living() if p.state is not None and not p.draining]
    at = next((p for p in here if p.state is not None and p.state.halted), here[0] if here else None)
    if at is not None and at.state is not None:
        if at.state.halted or world.hopeless() or waiting(at.state, at.clock).reason == "divergence":
            world.operator.reset(at)
        elif at.state.value.paused:
            world.operator.order(at, "resume")
    world.at(world.now + 10.0, rescue, world)


def check_attempts(world: World, judge: Judge, began: float) -> None:
    """Rounds that began in peace take few attempts."""
    for place, attempt in judge.attempts.items():
        *beginning, number = place
        before = judge.decided_at.get((*beginning, number - 1))
        if before is None or before < began + 5.0:
            continue
        value = judge.pages[judge.decided[place]].value
        if attempt > ATTEMPTS - 1 + _idle(world, judge, value.previous):
            raise Broken(f"round {number}, which began in peace, took {attempt + 1} attempts")


def _idle(world: World, judge: Judge, digest: bytes) -> int:
    """How many voters of the round after a value cannot lead it."""
    able = {p.name for p in world.living() if p.state is not None and not p.state.abstains}
    return sum(e.peer not in able for e in judge.pages[digest].value.electorate)
