"""What the nodes' event logs say, gathered while they are read.

Everything else of the demo (view, scenario, report, verdict) looks here and never at a log itself.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from node.eventlog import Event


@dataclass(frozen=True)
class Reducing:
    """How far a node's all-reduce is: 0 to 1."""

    round: int
    attempt: int
    fraction: float


@dataclass
class NodeHistory:
    """One node.

    Attributes:
        name: The name of its folder.
        events: All of its events, of earlier starts too, oldest first.
        peer: Its peer id, once known.
        phase: What it does now; empty before its first word.
        reason: Why the phase lasts.
        sentence: The same for people.
        round: The round it is in.
        training: The round that it trains now, or None.
        loss: Of its last inner step, nats per token.
        tokens_per_second: Of its present or last training.
        reducing: How far its all-reduce is, while one runs.
        address: By which others find it, since its last start.
        dashboard: The address of its dashboard, since its last start.
        commits: Its first event of each round's commit.
        finished: Its last `run.finished`.
    """

    name: str
    events: list[Event] = field(default_factory=list)
    peer: str = ""
    phase: str = ""
    reason: str = ""
    sentence: str = ""
    round: int = 0
    training: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    reducing: Reducing | None = None
    address: str = ""
    dashboard: str = ""
    commits: dict[int, Event] = field(default_factory=dict)
    finished: Event | None = None
    _began: float = 0.0
    _tokens: int = 0

    def launched(self) -> None:
        """The node's process is started anew: what it said of its former life holds no longer."""
        self.phase, self.reason, self.sentence, self.address, self.dashboard = "starting", "", "", "", ""
        self.training = self.reducing = None

    def add(self, event: Event) -> None:
        """Take in the next event of this node's log."""
        self.events.append(event)
        match event.kind:
            case "node.start":
                self.launched()
                self.peer = str(event.get("peer", ""))
            case "node.phase":
                self.phase = str(event.get("phase", ""))
                self.reason = str(event.get("reason") or "")
                self.sentence = str(event.get("sentence") or "")
                self.round = number(event, "round", self.round)
            case "directory.ready":
                addresses = event.get("multiaddrs") or ()
                self.address = str(addresses[0]) if addresses else ""
            case "dashboard.ready":
                self.dashboard = str(event.get("url", ""))
            case "train.begin":
                self.round = self.training = number(event, "round")
                self.reducing = None
                self._began, self._tokens = event.t, 0
            case "train.step":
                self.loss = event.get("loss")
                self._tokens += number(event, "tokens")
                if event.t > self._began:
                    self.tokens_per_second = self._tokens / (event.t - self._began)
            case "train.end":
                self.training = None
            case "reduce.begin":
                self.reducing = Reducing(number(event, "round"), number(event, "attempt"), 0.0)
            case "reduce.progress":
                fraction = float(event.get("fraction") or 0.0)
                self.reducing = Reducing(number(event, "round"), number(event, "attempt"), fraction)
            case "reduce.end" | "node.exit":
                self.reducing = None
            case "commit":
                self.commits.setdefault(number(event, "round"), event)
                self.reducing = None
            case "run.finished":
                self.finished = event

    def of(self, *kinds: str) -> Iterator[Event]:
        """Its events of some kinds, oldest first."""
        return (event for event in self.events if event.kind in kinds)

    def last(self, *kinds: str) -> Event | None:
        """The newest of `of`."""
        return next((event for event in reversed(self.events) if event.kind in kinds), None)

    @property
    def bytes_sent(self) -> dict[str, int]:
        """Bytes written to sockets: for `rounds`, for `state`, in `total`, over all of its starts.

        The log counts from the start of each process, so the counts of former ones are added.
        """
        before, now = (
            dict.fromkeys(("rounds", "state", "total"), 0),
            dict.fromkeys(("rounds", "state", "total"), 0),
        )
        for event in self.of("node.start", "bytes"):
            if event.kind == "node.start":
                before = {name: before[name] + now[name] for name in before}
                now = dict.fromkeys(now, 0)
            else:
                now = {name: number(event, name) for name in now}
        return {name: before[name] + now[name] for name in before}


class History:
    """All nodes of a demo.

    Args:
        names: Their names, in the order in which they are shown.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.nodes: dict[str, NodeHistory] = {name: NodeHistory(name) for name in names}

    def __getitem__(self, name: str) -> NodeHistory:
        return self.nodes[name]

    def __iter__(self) -> Iterator[NodeHistory]:
        return iter(self.nodes.values())

    def commits(self, names: Collection[str] | None = None) -> dict[int, Event]:
        """Each round's commit as the first node saw it, in order of rounds.

        Args:
            names: Only what these nodes saw.
        """
        first: dict[int, Event] = {}
        for node in self:
            if names is not None and node.name not in names:
                continue
            for round, event in node.commits.items():
                if round not in first or event.t < first[round].t:
                    first[round] = event
        return dict(sorted(first.items()))

    @property
    def committed(self) -> int:
        """The highest round that any node saw committed; -1 before the first."""
        return max((round for node in self for round in node.commits), default=-1)

    def evaluations(self) -> dict[int, float]:
        """Validation loss, nats per token, of the state that a round starts from, by round; 0 is before all training.

        Nodes take turns, and where several spoke the first one's word counts, for all have the same model.
        """
        found: dict[int, tuple[float, float]] = {}
        for node in self:
            for event in node.of("evaluation"):
                loss = event.get("loss")
                round = number(event, "round")
                if isinstance(loss, int | float) and (round not in found or event.t < found[round][0]):
                    found[round] = (event.t, float(loss))
        return {round: loss for round, (_, loss) in sorted(found.items())}

    def names_of(self, peers: Collection[str]) -> tuple[str, ...]:
        """Names of the nodes that have these peer ids."""
        return tuple(node.name for node in self if node.peer and node.peer in peers)

    def contributors(self, round: int) -> tuple[str, ...]:
        """Names of the nodes on the roster of a committed round."""
        event = self.commits().get(round)
        return self.names_of(roster(event)) if event is not None else ()


def roster(event: Event) -> tuple[str, ...]:
    """The peers that a commit's roster names."""
    entries: Any = event.get("roster") or ()
    if not isinstance(entries, list | tuple):
        return ()
    return tuple(
        str(entry.get("peer", "")) if isinstance(entry, Mapping) else str(entry) for entry in entries
    )


def number(event: Event, name: str, default: int = 0) -> int:
    """A field that is a whole number."""
    value = event.get(name, default)
    return int(value) if isinstance(value, int | float) else default


def count(event: Event, name: str) -> int:
    """A field that is a number of things, or the things themselves."""
    value = event.get(name)
    return len(value) if isinstance(value, list | tuple | Mapping) else number(event, name)
