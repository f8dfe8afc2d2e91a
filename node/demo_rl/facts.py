"""What the nodes' event logs say of the demo, gathered while they are read."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from node.demo_rl.plan import CHEAT, HONEST, NODES, STEADY_FROM, TRAINER, VALIDATOR, RlOptions
from node.demo_rl.timeline import Sample, per_step
from node.eventlog import Event


@dataclass
class Facts:
    """All that happened so far.

    Attributes:
        options: What a person chose.
        events: Of each node, oldest first.
        warm: Evaluations of the warm start.
        solved: Share of held-out tasks that each measured policy version solves.
        exits: Exit status of each node.
        trouble: What went wrong.
        seconds: From start to end.
        cpu: Seconds of all cores.
        evidence: Files that the trainer keeps against the cheat.
        samples: What the processes have used, after some of the steps.
    """

    options: RlOptions
    events: dict[str, list[Event]] = field(default_factory=lambda: {name: [] for name in NODES})
    warm: list[dict[str, float]] = field(default_factory=list)
    solved: dict[int, float] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)
    seconds: float = 0.0
    cpu: float = 0.0
    evidence: tuple[str, ...] = ()
    samples: list[Sample] = field(default_factory=list)

    def of(self, name: str, *kinds: str) -> list[Event]:
        """A node's events of some kinds."""
        return [event for event in self.events[name] if event.kind in kinds]

    def peer(self, name: str) -> str:
        """A node's peer id; empty while it is not known."""
        return next((str(event["peer"]) for event in self.of(name, "node.start")), "")

    def name_of(self, peer: str) -> str:
        """Whose peer id that is."""
        return next((name for name in NODES if self.peer(name) == peer), peer[-6:])

    @property
    def began(self) -> float:
        """When the trainer started."""
        return self.events[TRAINER][0].t if self.events[TRAINER] else 0.0

    @property
    def steps(self) -> list[Event]:
        """The GRPO steps."""
        return self.of(TRAINER, "rollouts.step")

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return bool(self.of(TRAINER, "run.finished"))

    @property
    def newest(self) -> int:
        """The newest published policy version."""
        return max((int(event["version"]) for event in self.of(TRAINER, "policy.published")), default=-1)

    def verdicts(self, worker: str) -> list[Event]:
        """What the trainer found about a worker's files."""
        peer = self.peer(worker)
        return [event for event in self.of(TRAINER, "rollout.verdict") if event["worker"] == peer]

    def ban(self) -> Event | None:
        """The ban of the cheat."""
        peer = self.peer(CHEAT)
        return next((event for event in self.of(TRAINER, "worker.banned") if event["worker"] == peer), None)

    def told(self) -> Event | None:
        """What the cheat was told when it was banned."""
        return next((event for event in self.of(CHEAT, "rollouts.judged") if event.get("banned")), None)

    def staleness(self) -> Counter[int]:
        """Groups that were trained on, by how many versions older than the step their work was given for."""
        count: Counter[int] = Counter()
        for step in self.steps:
            count.update({int(age): int(groups) for age, groups in dict(step["staleness"]).items()})
        return count

    def rollouts(self) -> dict[str, dict[str, int]]:
        """Files of each worker: accepted, and refused by code."""
        found: dict[str, dict[str, int]] = {}
        for name in (*HONEST, CHEAT):
            counts: Counter[str] = Counter()
            for event in self.verdicts(name):
                counts["accepted" if event["accepted"] else str(event["code"])] += 1
            found[name] = dict(counts)
        return found

    def seconds_of(self, kind: str, *names: str) -> list[float]:
        """Durations of some nodes' events of a kind."""
        return [float(event["seconds"]) for name in names for event in self.of(name, kind)]

    def broadcasts(self) -> list[float]:
        """Seconds from the beginning of each publication to the moment that all honest workers run on it."""
        found = []
        for event in self.of(TRAINER, "policy.published"):
            version = event["version"]
            ends = [
                max(
                    (each.t for each in self.of(name, "policy.running") if each["version"] == version),
                    default=None,
                )
                for name in HONEST
            ]
            if all(end is not None for end in ends):
                found.append(max(end for end in ends if end is not None) - event.t + float(event["seconds"]))
        return found

    def processor(self) -> dict[str, float] | None:
        """Processor seconds of a step in steady state, by phase."""
        return per_step(self.samples, self.steps, self.of, begin=STEADY_FROM)

    def summary(self) -> dict[str, Any]:
        """How long things took, seconds, the median of each."""
        return {
            "broadcast": _median(self.broadcasts()),
            "generation_of_a_file": _median(self.seconds_of("rollouts.made", *HONEST)),
            "verification_of_a_file": _median(self.seconds_of("verdict.given", VALIDATOR)),
            "training_of_a_step": _median(self.seconds_of("rollouts.step", TRAINER)),
        }


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
