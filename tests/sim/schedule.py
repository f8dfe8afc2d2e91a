"""Random schedules from a seed: what a run is made of, and what goes wrong in it."""

import random
from dataclasses import dataclass

from tests.sim.faults import CRASH_POINTS, Fault
from tests.sim.setting import Shape

STORM = 30.0
"""Seconds in which faults begin."""


@dataclass(frozen=True)
class Schedule:
    """A run with everything that goes wrong in it. It replays exactly.

    Attributes:
        seed: Of what else is random in the world: latencies, losses, training times.
        shape: The run.
        faults: In order of time.
    """

    seed: int
    shape: Shape
    faults: tuple[Fault, ...]


def draw(seed: int) -> Schedule:
    """The schedule of a seed."""
    rng = random.Random(f"schedule {seed}")
    voters = rng.choice((2, 3, 3, 4, 4, 5, 5, 5, 6, 7))
    others = rng.choice((0, 0, 0, 1, 2))
    shape = Shape(voters=voters, others=others, latency=rng.choice((0.01, 0.03, 0.1)), train=rng.choice((0.8, 1.5, 2.5)))
    seats = [f"v{i:02}" for i in range(voters)]
    names = seats + [f"w{i:03}" for i in range(others)]
    faults = [_draw(rng, seats, names) for _ in range(rng.randrange(3, 14))]
    return Schedule(seed, shape, tuple(sorted(faults, key=lambda fault: fault.at)))


def _draw(rng: random.Random, seats: list[str], names: list[str]) -> Fault:
    kind = rng.choices(
        ("kill", "vanish", "wipe", "crash", "stop", "split", "deaf", "rough", "slow disk", "full disk", "slow", "greedy",
         "old", "skew", "drain", "join", "clone", "diverge", "reset", "ban"),
        (10, 4, 3, 16, 8, 14, 6, 6, 3, 3, 2, 1, 1, 2, 3, 4, 1, 2, 2, 2),
    )[0]  # fmt: skip
    at, length = rng.uniform(0.2, STORM), rng.uniform(0.3, 12.0)
    who, number = (rng.choice(names),), 0.0
    if kind == "crash":
        number = float(rng.randrange(len(CRASH_POINTS)))
    elif kind == "split":
        who = tuple(name for name in names if rng.random() < 0.5) or who
    elif kind in ("deaf", "ban"):
        one, other = rng.sample(names, 2)
        who = (one, other)
    elif kind == "rough":
        number = rng.uniform(0.05, 0.5)
    elif kind == "slow disk":
        number = rng.uniform(0.05, 1.0)
    elif kind == "slow":
        number = rng.uniform(2.0, 6.0)
    elif kind == "skew":
        number = rng.uniform(0.5, 100.0)
    elif kind == "join":
        number = float(rng.random() < 0.7)
        who = (f"{'v' if number else 'w'}{rng.randrange(90, 99)}",)
    elif kind in ("wipe", "clone"):
        who = (rng.choice(seats),)
    return Fault(round(at, 3), kind, who, round(length, 3), round(number, 3))
