"""What happens to the nodes, and when. Pure: a function of what the event logs show.

All but one of the nodes begin together. While they train one more joins, through a node that is not the founder.
Later the founder is killed in the middle of an all-reduce, and two rounds after that another node is told to leave.
The rest finish. Each step happens once in a demo's life: one that was broken off and goes on does not repeat it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

LOWEST_FRACTION, HIGHEST_FRACTION = 0.2, 0.8
"""The founder is killed while its all-reduce is between these."""


class Step(StrEnum):
    """What is done to the run once."""

    JOIN = "join"
    KILL = "kill"
    LEAVE = "leave"


@dataclass(frozen=True)
class Cast:
    """Who plays which part.

    Attributes:
        members: Names of those that begin together; the first is the founder.
        joiner: The one that comes later.
    """

    members: tuple[str, ...]
    joiner: str

    @classmethod
    def of(cls, nodes: int) -> "Cast":
        """The cast of a demo that begins with so many nodes, at least 2."""
        names = tuple(f"node-{each}" for each in range(1, nodes + 2))
        return cls(names[:-1], names[-1])

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return (*self.members, self.joiner)

    @property
    def founder(self) -> str:
        """Who makes the run, and is killed later."""
        return self.members[0]

    @property
    def leaver(self) -> str:
        """Who leaves politely."""
        return self.members[1]

    @property
    def guide(self) -> str:
        """By whose address the joiner comes."""
        return self.members[2] if len(self.members) > 2 else self.members[1]

    @property
    def survivors(self) -> tuple[str, ...]:
        """Who is to be there at the end."""
        return tuple(name for name in self.names if name not in (self.founder, self.leaver))


@dataclass(frozen=True)
class Script:
    """When the steps happen, in rounds counted from 0.

    Attributes:
        rounds: Of the run.
        join: The joiner starts when this round begins.
        kill: From this round on the founder is killed, once the joiner contributes ...
        kill_anyway: ... and from this round on without waiting for that.
    """

    rounds: int
    join: int
    kill: int
    kill_anyway: int

    @classmethod
    def of(cls, rounds: int) -> "Script":
        """The script of a run of so many rounds, at least 4."""
        join = max(1, rounds // 5)
        kill = max(join + 1, rounds * 6 // 10)
        return cls(rounds, join, kill, max(kill, rounds - 3))

    def leave(self, killed: int) -> int:
        """The round in which the leaver is told to go, after the founder was killed in round `killed`.

        Two rounds later, but not in the last round, so that others are seen to go on.
        """
        return max(killed + 1, min(killed + 2, self.rounds - 2))


@dataclass(frozen=True)
class Reduce:
    """An all-reduce that is under way."""

    round: int
    fraction: float


@dataclass(frozen=True)
class Scene:
    """What is known at a moment.

    Attributes:
        fresh: Whether the run is still to be made.
        done: The steps that have happened, with their rounds, in earlier starts of the demo too.
        launched: Nodes whose processes were started by this start of the demo.
        addresses: Addresses of those that can be joined by.
        committed: Highest committed round; -1 before the first.
        contributing: Nodes on the roster of the newest committed round.
        founder_reduce: The founder's all-reduce, while one runs.
        leaver_training: The round that the leaver trains now, or None.
        finished: Nodes whose run is finished.
    """

    fresh: bool
    done: Mapping[Step, int] = field(default_factory=dict)
    launched: frozenset[str] = frozenset()
    addresses: Mapping[str, str] = field(default_factory=dict)
    committed: int = -1
    contributing: frozenset[str] = frozenset()
    founder_reduce: Reduce | None = None
    leaver_training: int | None = None
    finished: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Launch:
    """Start a node: make the run, or join by an address, or go on with what its folder holds."""

    node: str
    make_run: bool = False
    join: str = ""
    step: Step | None = None
    round: int = 0


@dataclass(frozen=True)
class Kill:
    """SIGKILL, to the node's own process only."""

    node: str
    round: int
    fraction: float


@dataclass(frozen=True)
class Leave:
    """SIGTERM."""

    node: str
    round: int


@dataclass(frozen=True)
class Finish:
    """All that are left have finished the run."""


Action = Launch | Kill | Leave | Finish


def expected(cast: Cast, done: Mapping[Step, int]) -> tuple[str, ...]:
    """The nodes that are to be up after these steps."""
    gone = {cast.founder: Step.KILL, cast.leaver: Step.LEAVE}
    names = (*cast.members, cast.joiner) if Step.JOIN in done else cast.members
    return tuple(name for name in names if gone.get(name) not in done)


def decide(cast: Cast, script: Script, scene: Scene) -> tuple[Action, ...]:
    """What to do now. Asked again after each event; what is done must show in the next scene."""
    up = expected(cast, scene.done)
    if up and all(name in scene.finished for name in up):
        return (Finish(),)
    return (
        *_openings(up, scene),
        *_joining(cast, script, scene),
        *_killing(cast, script, scene),
        *_leaving(cast, script, scene),
    )


def _openings(up: tuple[str, ...], scene: Scene) -> tuple[Action, ...]:
    """The first node begins alone; the others come by its address as soon as it has one."""
    first, *others = up
    if first not in scene.launched:
        return (Launch(first, make_run=scene.fresh),)
    address = scene.addresses.get(first)
    if not address:
        return ()
    return tuple(Launch(name, join=address) for name in others if name not in scene.launched)


def _joining(cast: Cast, script: Script, scene: Scene) -> tuple[Action, ...]:
    address = scene.addresses.get(cast.guide)
    if Step.JOIN in scene.done or scene.committed < script.join - 1 or not address:
        return ()
    return (Launch(cast.joiner, join=address, step=Step.JOIN, round=scene.committed + 1),)


def _killing(cast: Cast, script: Script, scene: Scene) -> tuple[Action, ...]:
    reduce = scene.founder_reduce
    if Step.KILL in scene.done or Step.JOIN not in scene.done or reduce is None:
        return ()
    if reduce.round <= scene.committed:  # the founder only catches up: the others need it no more
        return ()
    joined = cast.joiner in scene.contributing
    if reduce.round < (script.kill if joined else script.kill_anyway):
        return ()
    if not LOWEST_FRACTION <= reduce.fraction <= HIGHEST_FRACTION:
        return ()
    return (Kill(cast.founder, reduce.round, reduce.fraction),)


def _leaving(cast: Cast, script: Script, scene: Scene) -> tuple[Action, ...]:
    killed = scene.done.get(Step.KILL)
    if killed is None or Step.LEAVE in scene.done or scene.leaver_training is None:
        return ()
    if scene.leaver_training < script.leave(killed):
        return ()
    return (Leave(cast.leaver, scene.leaver_training),)
