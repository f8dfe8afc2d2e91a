"""What can go wrong in a world: one function per kind of fault. All of them end by themselves, or with the peace."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.sim.disk import Crash
from tests.sim.process import Process
from tests.sim.world import World


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        at: When, seconds.
        kind: What: a key of ``KINDS``.
        who: The members it is about.
        length: For how long, seconds.
        number: What else the kind needs: a share, a factor, the index of a kind of effect.
    """

    at: float
    kind: str
    who: tuple[str, ...] = ()
    length: float = 0.0
    number: float = 0.0

    def __str__(self) -> str:
        words = [f"{self.at:7.2f} s  {self.kind}", *self.who]
        if self.length:
            words.append(f"for {self.length:.2f} s")
        if self.number:
            words.append(f"({self.number:g})")
        return " ".join(words)


CRASH_POINTS = tuple(
    (kind, after)
    for kind in ("Persist", "Say Ready", "Say Proposal", "Say Close", "Say Vote", "Commit", "Reduce", "Fetch")
    for after in (False, True)
)
"""Before or after which effect a process may die."""


def _process(world: World, fault: Fault) -> Process | None:
    return next((p for p in world.named.get(fault.who[0], ()) if not p.left), None)


def _back(world: World, process: Process, life: int) -> None:
    if not process.alive and process.life == life and not process.left:
        process.boot_up()


def _kill(world: World, fault: Fault) -> None:
    process = _process(world, fault)
    if process is not None and process.alive:
        process.kill(refuses=fault.kind != "vanish")
        if fault.kind == "wipe":
            process.wipe()
        if fault.length:
            world.at(world.now + fault.length, _back, world, process, process.life)


def _crash(world: World, fault: Fault) -> None:
    process = _process(world, fault)
    if process is not None:
        kind, after = CRASH_POINTS[int(fault.number) % len(CRASH_POINTS)]
        process.crash = Crash(kind, after, fault.length)


def _stop(world: World, fault: Fault) -> None:
    process = _process(world, fault)
    if process is not None and process.alive:
        process.pause()
        world.at(world.now + fault.length, process.resume)


def _split(world: World, fault: Fault) -> None:
    """Cut some off from all others, and from one another with ``number``."""
    side = set(fault.who)
    others = set(world.named) - side
    pairs = {(a, b) for a in side for b in others} | {(b, a) for a in side for b in others}
    _cut(world, pairs, fault.length)


def _deaf(world: World, fault: Fault) -> None:
    """The second name does not hear the first; the first hears the second."""
    _cut(world, {(fault.who[0], fault.who[1])}, fault.length)


def _cut(world: World, pairs: set[tuple[str, str]], length: float) -> None:
    world.links.cut(pairs)
    world.troubled = True
    for name in {name for pair in pairs for name in pair}:
        for process in world.named.get(name, ()):
            process.disturbed = max(process.disturbed, world.now + length)
    world.at(world.now + length, world.links.mend, pairs)


def _rough(world: World, fault: Fault) -> None:
    """Loss, duplicates and late messages everywhere."""
    links, share = world.links, fault.number
    links.loss, links.duplication, links.late = share, share / 2, share
    for process in world.processes:
        process.disturbed = max(process.disturbed, world.now + fault.length)

    def over() -> None:
        links.loss = links.duplication = links.late = 0.0

    world.at(world.now + fault.length, over)


def _slow_disk(world: World, fault: Fault) -> None:
    process = _process(world, fault)
    if process is not None:
        disk = process.disk
        disk.slow = fault.number
        process.disturbed = max(process.disturbed, world.now + fault.length)
        world.at(world.now + fault.length, setattr, disk, "slow", 0.0)


def _full_disk(world: World, fault: Fault) -> None:
    process = _process(world, fault)
    if process is not None:
        disk = process.disk
        disk.full = True
        process.disturbed = max(process.disturbed, world.now + fault.length)
        world.at(world.now + fault.length, setattr, disk, "full", False)


def _habit(world: World, fault: Fault) -> None:
    process = _process(world, fault)
    if process is None:
        return
    habits = process.habits
    if fault.kind == "slow":
        habits.pace = fault.number
        process.disturbed = float("inf")
    elif fault.kind == "greedy":
        habits.claims = 1000
    elif fault.kind == "old":
        habits.old = True
    else:
        habits.offset = fault.number + process.clock - world.now  # it jumps forward, as after a suspend


def _drain(world: World, fault: Fault) -> None:
    process = _process(world, fault)
    if process is not None and process.alive and not process.paused:
        process.drain()


def _join(world: World, fault: Fault) -> None:
    if fault.who[0] not in world.named:
        world.add(fault.who[0], seated=bool(fault.number))


def _clone(world: World, fault: Fault) -> None:
    """A second process with the identity of a first, on a machine of its own with an empty disk."""
    if fault.who[0] in world.named and len(world.named[fault.who[0]]) == 1:
        world.troubled = True
        if world.judge is not None:
            world.judge.cloned.add(fault.who[0])
        clone = world.add(fault.who[0], seated=True)
        for process in world.named[fault.who[0]]:
            process.disturbed = float("inf")
        world.at(world.now + fault.length, clone.kill)


def _diverge(world: World, fault: Fault) -> None:
    """The outer state of a member changes under it, as by a bit that flips; it notices at its next start."""
    process = _process(world, fault)
    if process is not None and process.alive and process.state is not None:
        process.disk.base = bytes(32)
        process.kill()
        if world.judge is not None:
            world.judge.diverged.add(process.name)
        world.at(world.now + fault.length, _back, world, process, process.life)


def _reset(world: World, fault: Fault) -> None:
    """A person or one of two coordinators begins a new epoch with those that a member reaches, needed or not."""
    process = _process(world, fault)
    if process is not None:
        (world.operator, *world.delegates)[int(fault.number)].reset(process)


def _rivals(world: World, fault: Fault) -> None:
    """Two coordinators, each at a member of its own, begin an epoch at the same time."""
    for operator, name in zip(world.delegates, fault.who, strict=True):
        operator.reset(world.process(name))


_TAKEN_BACK = {"ban": "unban", "unseat": "seat", "pause": "resume"}


def _order(world: World, fault: Fault) -> None:
    """The operator, sitting at the first name, gives an order about the second, and takes it back later."""
    at, peer, kind = world.process(fault.who[0]), fault.who[1], fault.kind
    if at.state is None:
        return
    if kind == "parameter":
        world.operator.order(at, kind, name="round.inner_steps", value=("2", "6", "")[int(fault.number)])
        return
    world.operator.order(at, kind, "" if kind == "pause" else peer)
    for process in world.named[peer]:
        process.disturbed = float("inf")
    if kind in _TAKEN_BACK:
        world.at(world.now + fault.length, world.operator.order, at, _TAKEN_BACK[kind], peer)


KINDS: dict[str, Callable[[World, Fault], None]] = {
    "kill": _kill,
    "vanish": _kill,
    "wipe": _kill,
    "crash": _crash,
    "stop": _stop,
    "split": _split,
    "deaf": _deaf,
    "rough": _rough,
    "slow disk": _slow_disk,
    "full disk": _full_disk,
    "slow": _habit,
    "greedy": _habit,
    "old": _habit,
    "skew": _habit,
    "drain": _drain,
    "join": _join,
    "clone": _clone,
    "diverge": _diverge,
    "reset": _reset,
    "rivals": _rivals,
    **dict.fromkeys(("ban", "kick", "unseat", "pause", "parameter"), _order),
}


def apply(world: World, fault: Fault) -> None:
    """Let it go wrong."""
    KINDS[fault.kind](world, fault)
