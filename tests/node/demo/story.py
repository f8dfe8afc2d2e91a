"""Writes the event logs and the journal of a demo that never ran: what view, report and verdict are tested with.

``python -m tests.node.demo.story FOLDER`` writes a whole one with its report, to look at.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node import eventlog
from node.demo.deeds import Deeds, Facts
from node.demo.folder import DemoFolder
from node.demo.history import History
from node.demo.options import DemoOptions
from node.demo.scenario import Cast
from node.eventlog import Event, EventLog
from tests.node.demo.made_up import PARAMETERS, TOKENS, digest, loss_at, peer

START = 1_700_000_000.0
OPTIONS = DemoOptions(nodes=4, rounds=10, inner_steps=20, workers_per_node=1, seed=1)
TRAIN, WAIT, REDUCE, VOTE, APPLY = 11.0, 0.8, 2.0, 0.3, 0.4


@dataclass
class Story:
    """The events of each node, and of the demo, in order.

    Attributes:
        joined: The round from which the joiner contributes.
        killed: The round in whose all-reduce the founder dies.
        left: The round that is the leaver's last.
    """

    options: DemoOptions = OPTIONS
    joined: int = 4
    killed: int = 6
    left: int = 8
    nodes: dict[str, list[Event]] = field(default_factory=dict)
    journal: list[Event] = field(default_factory=list)

    @property
    def cast(self) -> Cast:
        """Who plays which part."""
        return Cast.of(self.options.nodes)

    def tell(self, name: str, t: float, kind: str, **fields: Any) -> None:
        """One event of a node."""
        self.nodes.setdefault(name, []).append(Event(t, kind, fields))

    def does(self, t: float, kind: str, **fields: Any) -> None:
        """One event of the demo."""
        self.journal.append(Event(t, kind, fields))

    def change(self, name: str, change: Callable[[Event], Event | None]) -> None:
        """Replace or, by None, remove events of a node."""
        self.nodes[name] = [new for event in self.nodes[name] if (new := change(event)) is not None]

    def drop(self, name: str, *kinds: str) -> None:
        """Remove a node's events of some kinds."""
        self.change(name, lambda event: None if event.kind in kinds else event)

    def facts(self) -> Facts:
        """What the demo would know."""
        history = History(self.cast.names)
        for name, events in self.nodes.items():
            for event in sorted(events, key=lambda each: each.t):
                history[name].add(event)
        return Facts(
            self.options, PARAMETERS, history, Deeds.of(sorted(self.journal, key=lambda each: each.t))
        )

    def write(self, folder: DemoFolder) -> None:
        """As files, in the way that nodes and demo write them."""
        for name, events in self.nodes.items():
            folder.node(name).mkdir(parents=True)
            _write(folder.node(name) / eventlog.FILE, events)
        _write(folder.journal, self.journal)


def _write(path: Path, events: Iterable[Event]) -> None:
    now = [0.0]
    log = EventLog(path, clock=lambda: now[0])
    for event in sorted(events, key=lambda each: each.t):
        now[0] = event.t
        log.emit(event.kind, **event.fields)
    log.close()


def whole(options: DemoOptions = OPTIONS, *, until: int | None = None) -> Story:
    """A demo in which everything happened as it should, or its beginning up to a number of committed rounds."""
    story = Story(options)
    cast, t = story.cast, START + 20.0
    story.does(START, "demo.start", options=options.plain(), compare=False, fresh=True)
    for index, name in enumerate(cast.members):
        _start(story, name, START + 1.0 + (8.0 if index else 0.0), joins=0)
    alive = list(cast.members)
    for round in range(options.rounds if until is None else until):
        if round == story.joined - 2:
            story.does(t, "demo.step", step="join", node=cast.joiner, round=round)
            _start(story, cast.joiner, t + 0.2, joins=story.joined)
        if round == story.joined:
            alive.append(cast.joiner)
            _download(story, t)
        if round == story.left + 1:
            alive.remove(cast.leaver)
        t = _round(story, alive, round, t)
        if round == story.killed:
            alive.remove(cast.founder)
    if until is None:
        _end(story, alive, t)
    return story


def _start(story: Story, name: str, t: float, joins: int) -> None:
    story.does(t - 0.1, "demo.launch", node=name, how="init" if name == "node-1" else "run", join="")
    story.tell(name, t, "node.start", peer=peer(name), version="0.1.0", pid=1, boot="00")
    story.tell(
        name, t + 3, "directory.ready", multiaddrs=[f"/ip4/127.0.0.1/tcp/4001/p2p/{peer(name)}"], seconds=3.0
    )
    _phase(story, name, t + 3.1, "joining", "start", "Finding the run's chain and state.", joins)


def _phase(story: Story, name: str, t: float, phase: str, reason: str, sentence: str, round: int) -> None:
    story.tell(
        name,
        t,
        "node.phase",
        phase=phase,
        reason=reason,
        sentence=sentence,
        until=None,
        missing=[],
        round=round,
        attempt=0,
    )


def _download(story: Story, t: float) -> None:
    joiner = story.cast.joiner
    story.tell(
        joiner,
        t - 0.3,
        "state.downloaded",
        round=story.joined,
        bytes=17_309_184,
        holders=[peer("node-2"), peer("node-3"), peer("node-4")],
        seconds=2.4,
        digest=digest("state", story.joined),
    )
    _bytes(story, "node-2", t - 0.2, story.joined, 8_000_000)


def _round(story: Story, alive: list[str], round: int, t: float) -> float:
    """One round of those alive; returns when the next begins."""
    dies = story.cast.founder if round == story.killed else None
    took_part = [name for name in alive if name != dies]
    trained = t + TRAIN
    reduced = trained + WAIT + REDUCE
    committed = reduced + VOTE + (4.0 if dies else 0.0)
    story.tell(took_part[round % len(took_part)], t, "evaluation", round=round, loss=loss_at(round))
    for name in alive:
        _train(story, name, round, t + 0.1, trained)
        _phase(
            story,
            name,
            trained + 0.1,
            "ready",
            "readys",
            f"Round {round}: 2 of 4 members ready, waiting at most 5 s more for {peer('node-3')[-6:]}.",
            round,
        )
        story.tell(
            name,
            trained + WAIT,
            "reduce.begin",
            round=round,
            attempt=0,
            leader=peer("node-3"),
            roster=[],
            chunks=34,
        )
        for step in range(1, 10 if name != dies else 5):
            at = trained + WAIT + step * REDUCE / 10
            story.tell(name, at, "reduce.progress", round=round, attempt=0, fraction=step / 10)
        if name == dies:
            story.does(at + 0.01, "demo.step", step="kill", node=name, round=round, fraction=0.4)
            story.does(at + 0.1, "demo.exit", node=name, status=-9)
            continue
        story.tell(name, reduced, "reduce.end", round=round, attempt=0, seconds=REDUCE)
        story.tell(
            name,
            committed,
            "commit",
            epoch=0,
            round=round,
            attempt=1 if dies else 0,
            value=digest("value", round),
            roster=[peer(each) for each in took_part],
            tokens=len(took_part) * TOKENS,
            partial_tokens=0,
        )
        _apply(story, name, round + 1, committed + APPLY)
        _bytes(story, name, committed + APPLY, round + 1, 0)
        if name == story.cast.leaver and round == story.left:
            _leave(story, name, round, t + 2.0, committed + 1.0)
    return committed + APPLY + 0.3


def _train(story: Story, name: str, round: int, begin: float, end: float) -> None:
    start = (round * 8 + int(name[-1])) * 160
    story.tell(name, begin, "train.begin", round=round, start=start, count=160)
    _phase(story, name, begin, "training", "training", f"Training on 160 samples for round {round}.", round)
    for step in range(20):
        story.tell(
            name,
            begin + (step + 1) * (end - begin) / 20,
            "train.step",
            round=round,
            step=step,
            loss=loss_at(round) - 0.02 * step,
            tokens=8 * 128,
        )
    loss = loss_at(round) - 0.2
    story.tell(name, end, "train.end", round=round, steps=20, tokens=TOKENS, seconds=end - begin, loss=loss)
    story.tell(name, end + 0.05, "contribution.frozen", round=round, bytes=PARAMETERS, seconds=0.02)


def _apply(story: Story, name: str, round: int, t: float) -> None:
    story.tell(
        name,
        t,
        "apply",
        round=round,
        digest=digest("state", round),
        parameters=digest("params", round),
        momentum=digest("moment", round),
        seconds=APPLY,
    )


def _bytes(story: Story, name: str, t: float, round: int, state: int) -> None:
    sent = round * 3_350_000
    earlier = max((event["state"] for event in story.nodes[name] if event.kind == "bytes"), default=0)
    story.tell(
        name, t, "bytes", round=round, rounds=sent, state=earlier + state, total=sent + earlier + state
    )


def _leave(story: Story, name: str, round: int, told: float, t: float) -> None:
    story.does(told, "demo.step", step="leave", node=name, round=round)
    story.tell(name, told + 0.1, "drain.begin", round=round)
    story.tell(name, t, "goodbye")
    story.tell(name, t + 0.1, "node.exit", status=0)
    story.does(t + 0.2, "demo.exit", node=name, status=0)


def _end(story: Story, alive: list[str], t: float) -> None:
    rounds = story.options.rounds
    for name in alive:
        story.tell(name, t + 0.4, "evaluation", round=rounds, loss=loss_at(rounds))
        story.tell(
            name,
            t + 0.5,
            "run.finished",
            round=rounds,
            digest=digest("state", rounds),
            parameters=digest("params", rounds),
            momentum=digest("moment", rounds),
        )
        story.tell(name, t + 1.0, "node.exit", status=0)
        story.does(t + 1.1, "demo.exit", node=name, status=0)
    story.does(
        t + 8.0,
        "demo.model",
        folder="runs/demo/model",
        node=alive[0],
        parameters=PARAMETERS,
        parameters_digest=digest("params", rounds),
        logit_difference=0.0,
        samples=["def main(self):\n    return self.value", 'The <b>object</b> is a & "value"'],
    )
    story.does(t + 8.1, "demo.memory", peak=4_700_000_000)
    story.does(t + 8.2, "demo.end")


def main(folder: Path) -> None:
    """Write a whole story with its report."""
    from node.demo.html import page
    from node.demo.report import make_report, samples_of, write_report
    from node.demo.verdict import judge
    from node.machine import measure

    story = whole()
    story.write(DemoFolder(folder))
    facts = story.facts()
    samples = samples_of(facts)
    report = make_report(facts, judge(facts, samples), samples, measure(folder))
    write_report(folder, report, page(report, facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
