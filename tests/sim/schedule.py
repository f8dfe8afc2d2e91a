"""Random schedules from a seed: what a run is made of, and what goes wrong in it."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from tests.sim.faults import CRASH_POINTS, Fault
from tests.sim.setting import Shape

STORM = 30.0
"""Seconds in which faults begin."""


@dataclass(frozen=True)
class Profile:
    """What schedules are drawn from.

    Attributes:
        voters: How many voters a run may have, each as likely as another.
        others: How many members without a seat.
        faults: Fewest and most faults.
        kinds: Kinds of faults, and how often one is drawn.
        points: Which crash points are drawn.
        longest: Most seconds of one fault.
        fragments: Into how many parts the grid may be divided.
        coordinators: How many voters may have a coordinator that resets by itself.
    """

    voters: tuple[int, ...]
    others: tuple[int, ...]
    faults: tuple[int, int]
    kinds: Mapping[str, int]
    points: tuple[int, ...] = tuple(range(len(CRASH_POINTS)))
    longest: float = 12.0
    fragments: tuple[int, ...] = (1,)
    coordinators: tuple[int, ...] = (0,)


EVERYTHING = Profile(
    voters=(2, 3, 3, 4, 4, 5, 5, 5, 6, 7),
    others=(0, 0, 0, 1, 2),
    faults=(3, 13),
    kinds={
        "kill": 10, "vanish": 4, "wipe": 3, "crash": 16, "stop": 8, "split": 14, "deaf": 6, "rough": 6, "slow disk": 3,
        "full disk": 3, "slow": 2, "greedy": 2, "old": 2, "skew": 2, "drain": 3, "join": 4, "diverge": 2, "clone": 2,
        "reset": 3, "rivals": 2, "ban": 2, "kick": 1, "unseat": 1, "pause": 2, "parameter": 1,
    },
    fragments=(1, 1, 2, 3),
    coordinators=(0, 1, 2),
)  # fmt: skip
"""Every kind of fault."""

VOTES = Profile(
    voters=(2, 3, 3, 4, 4, 5),
    others=(0,),
    faults=(10, 30),
    kinds={"crash": 12, "split": 14, "rough": 4, "deaf": 4, "stop": 3, "kill": 3},
    points=tuple(
        index
        for index, (kind, _) in enumerate(CRASH_POINTS)
        if kind in ("Say Close", "Say Vote", "Commit", "Fetch")
    ),
    longest=5.0,
)
"""Short faults around votes, in small electorates."""


DISKS = Profile(
    voters=(3, 3, 4, 5),
    others=(0,),
    faults=(10, 25),
    kinds={"wipe": 14, "split": 8, "crash": 4, "rough": 3, "deaf": 2},
    longest=3.0,
)
"""Disks that are lost, again and again."""

LEAVERS = Profile(
    voters=(2, 2, 3),
    others=(0,),
    faults=(4, 12),
    kinds={"drain": 6, "rough": 5, "join": 4, "deaf": 4, "split": 4},
    longest=4.0,
)
"""Drains and joins while messages are lost."""


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


def draw(seed: int, profile: Profile | None = None) -> Schedule:
    """The schedule of a seed; every fourth gathers its faults around votes."""
    profile = profile or (VOTES if seed % 4 == 3 else EVERYTHING)
    rng = random.Random(f"schedule {seed}")
    voters, others = rng.choice(profile.voters), rng.choice(profile.others)
    shape = Shape(
        voters=voters,
        others=others,
        latency=rng.choice((0.01, 0.03, 0.1)),
        train=rng.choice((0.8, 1.5, 2.5)),
        fragments=rng.choice(profile.fragments),
        coordinators=min(rng.choice(profile.coordinators), voters),
    )
    seats = [f"v{i:02}" for i in range(voters)]
    names = seats + [f"w{i:03}" for i in range(others)]
    count = rng.randint(*profile.faults)
    faults = [_draw(rng, profile, seats, names) for _ in range(count)]
    return Schedule(seed, shape, tuple(sorted(faults, key=lambda fault: fault.at)))


def _draw(rng: random.Random, profile: Profile, seats: list[str], names: list[str]) -> Fault:
    kind = rng.choices(list(profile.kinds), list(profile.kinds.values()))[0]
    at, length = rng.uniform(0.2, STORM), rng.uniform(0.3, profile.longest)
    who, number = (rng.choice(names),), 0.0
    if kind == "crash":
        number = float(rng.choice(profile.points))
    elif kind == "split":
        who = tuple(name for name in names if rng.random() < 0.5) or who
    elif kind in ("deaf", "rivals", "ban", "kick", "unseat", "pause", "parameter"):
        one, other = rng.sample(names, 2)
        who, number = (one, other), float(rng.randrange(3)) if kind == "parameter" else 0.0
    elif kind == "reset":
        number = float(rng.randrange(3))
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
