"""What the demo itself did and found, as its journal tells it: the other half of the facts beside the nodes' logs."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from node.demo.history import History
from node.demo.options import DemoOptions
from node.demo.scenario import Cast, Script, Step
from node.eventlog import Event


@dataclass
class Deeds:
    """The journal, of all starts.

    Attributes:
        options: The command line's options, as of the first start.
        starts: Unix seconds of each start of the demo.
        steps: The journal's event of each step that happened.
        launches: Node names with the times at which each was started, in this start of the demo.
        exits: Last exit status of each node, negative for a signal.
        left_behind: Processes that outlived a killed node, by name.
        troubles: Sentences about what went wrong.
        model: What checking the exported model found; empty when it was not done.
        baseline: What the synchronous baseline came to; empty when it was not asked for.
        peak_memory: Bytes, of all processes together.
        compared: Whether the baseline was asked for.
        ended: Unix seconds of the end of the last start, None before it.
    """

    options: dict[str, Any] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)
    steps: dict[Step, Event] = field(default_factory=dict)
    launches: dict[str, list[float]] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)
    left_behind: dict[str, int] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    model: dict[str, Any] = field(default_factory=dict)
    baseline: dict[str, Any] = field(default_factory=dict)
    peak_memory: int = 0
    compared: bool = False
    ended: float | None = None

    @property
    def resumed(self) -> bool:
        """Whether the demo was broken off and went on."""
        return len(self.starts) > 1

    @property
    def done(self) -> dict[Step, int]:
        """Steps that happened, with their rounds."""
        return {step: int(event.get("round", 0)) for step, event in self.steps.items()}

    def add(self, event: Event) -> None:
        """Take in the journal's next event."""
        match event.kind:
            case "demo.start":
                self.starts.append(event.t)
                self.compared = bool(event.get("compare"))
                self.ended = None
                self.options = self.options or dict(event.get("options") or {})
                self.launches.clear()
                self.troubles.clear()
                self._forget_unended()
            case "demo.step":
                self.steps.setdefault(Step(event["step"]), event)
            case "demo.launch":
                self.launches.setdefault(event["node"], []).append(event.t)
                self.exits.pop(event["node"], None)
            case "demo.exit":
                self.exits[event["node"]] = int(event["status"])
            case "demo.left-behind":
                self.left_behind[event["node"]] = int(event["processes"])
            case "demo.trouble":
                self.troubles.append(str(event["sentence"]))
            case "demo.model":
                self.model = dict(event.fields)
            case "demo.baseline":
                self.baseline = dict(event.fields)
            case "demo.memory":
                self.peak_memory = max(self.peak_memory, int(event["peak"]))
            case "demo.end":
                self.ended = event.t

    def _forget_unended(self) -> None:
        """A step whose node had not ended by itself when the demo was broken off has to happen again."""
        for step in (Step.KILL, Step.LEAVE):
            if step in self.steps and self.steps[step]["node"] not in self.exits:
                del self.steps[step]

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Deeds":
        """All events of a journal."""
        deeds = cls()
        for event in events:
            deeds.add(event)
        return deeds


@dataclass(frozen=True)
class Facts:
    """All that verdict and report are made of.

    Attributes:
        options: The demo's options.
        parameters: Values of the model.
        history: The nodes' logs.
        deeds: The demo's journal.
    """

    options: DemoOptions
    parameters: int
    history: History
    deeds: Deeds

    @property
    def cast(self) -> Cast:
        """Who plays which part."""
        return Cast.of(self.options.nodes)

    @property
    def script(self) -> Script:
        """When the steps are to happen."""
        return Script.of(self.options.rounds)
