"""Where processor time goes in the demo: which process works for which phase, and what a step costs in each.

Phases are *generation* (engines, environments and daemons of the honest workers), *training* (the trainer's worker),
*verification* (the validator and the reader of strangers' files), *broadcast* (the relay, and what publishing,
bringing and taking a policy version costs in the other processes), *coordination* (the rest of the trainer) and
*network* (directory processes and their helpers). The cheat counts nowhere.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from node.demo_rl.plan import HONEST, RELAY, TRAINER, VALIDATOR
from node.eventlog import Event

PHASES = ("generation", "training", "verification", "broadcast", "coordination", "network")
USEFUL, ADDED = ("generation", "training"), ("verification", "broadcast")

_OF_NODES = {
    TRAINER: "coordination", RELAY: "broadcast", VALIDATOR: "verification",
    **dict.fromkeys(HONEST, "generation"),
}  # fmt: skip
_OF_MODULES = {
    "rl.training": "training", "rl.engine": "generation", "rl.rollouts.reader": "verification",
    "protocol.directory.process": "network",
}  # fmt: skip
_HELPER = "p2pd"
_BROADCASTS = ("policy.published", "policy.brought", "policy.running")


@dataclass(frozen=True)
class Sample:
    """Processor seconds of each phase since the start of its processes, at one moment.

    Attributes:
        t: Unix seconds.
        spent: Seconds by phase.
    """

    t: float
    spent: Mapping[str, float]


class Watch:
    """Reads what the processes of the demo have used; one that has ended counts with what was read last."""

    def __init__(self) -> None:
        self._read: dict[tuple[int, float], tuple[str, float]] = {}

    def look(self, nodes: Mapping[str, int], t: float) -> Sample:
        """Read all processes of some nodes, and those below them.

        Args:
            nodes: Process ids by the nodes' names.
            t: Unix seconds.
        """
        for name, pid in nodes.items():
            if name not in _OF_NODES:
                continue
            try:
                process = psutil.Process(pid)
                family = [process, *process.children(recursive=True)]
            except psutil.Error:
                continue
            for each in family:
                self._one(name, each)
        spent = dict.fromkeys(PHASES, 0.0)
        for phase, seconds in self._read.values():
            spent[phase] += seconds
        return Sample(t, spent)

    def _one(self, name: str, process: psutil.Process) -> None:
        try:
            with process.oneshot():
                key = (process.pid, process.create_time())
                times = process.cpu_times()
                phase = phase_of(name, process.cmdline())
        except psutil.Error:
            return
        self._read[key] = (phase, times.user + times.system)


def phase_of(node: str, command: Sequence[str]) -> str:
    """For which phase a process works.

    Args:
        node: The node that it belongs to.
        command: Its command line.
    """
    if command and command[0].endswith(_HELPER):
        return "network"
    module = command[command.index("-m") + 1] if "-m" in command[:-1] else ""
    return _OF_MODULES.get(module, _OF_NODES[node])


def per_step(
    samples: Sequence[Sample], steps: Sequence[Event], events: Callable[..., Iterable[Event]], *, begin: int
) -> dict[str, float] | None:
    """Processor seconds of a step by phase, from one step to the last; None where too little was measured.

    What moving a policy costs in the processes of other phases is told by their events, as an upper bound: what such a
    process does at the same time is in it.

    Args:
        samples: In the order in which they were taken.
        steps: GRPO steps.
        events: A node's events of some kinds.
        begin: The number of the first step that counts, from 0: before that workers are new and all is audited.
    """
    first = next((sample for sample in samples if len(steps) > begin and sample.t >= steps[begin].t), None)
    if first is None:
        return None
    last = samples[-1]
    count = sum(first.t < step.t <= last.t for step in steps)
    if not count:
        return None
    spent = {phase: last.spent[phase] - first.spent[phase] for phase in PHASES}
    for name, phase in _OF_NODES.items():
        if name == RELAY:
            continue
        moved = sum(float(e["cpu"]) for e in events(name, *_BROADCASTS) if first.t < e.t <= last.t)
        spent[phase] -= moved
        spent["broadcast"] += moved
    return {phase: seconds / count for phase, seconds in spent.items()}


def added_share(spent: Mapping[str, float]) -> float:
    """What broadcast and verification add to what generation and training need."""
    return sum(spent[phase] for phase in ADDED) / sum(spent[phase] for phase in USEFUL)
