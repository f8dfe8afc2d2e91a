"""What a person sees while the demo runs, and at its end."""

import time
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from node.demo.deeds import Facts
from node.demo.history import NodeHistory, roster
from node.demo.scenario import Cast, Step
from protocol.units import Bytes

REFRESH = timedelta(milliseconds=500)
NOTES = 7
_SLOWEST_PLAIN = timedelta(seconds=20)

_PHASE_STYLES = {"training": "green", "reducing": "yellow", "voting": "cyan", "draining": "magenta"}


class View:
    """A live table on a terminal; lines of text where the output is no terminal; nothing when quiet.

    Args:
        facts: What happens, as it grows.
        console: Where to show it.
        quiet: Show nothing.
    """

    def __init__(self, facts: Facts, console: Console, *, quiet: bool = False) -> None:
        self._facts = facts
        self._console = console
        self._quiet = quiet
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._began = time.monotonic()
        self._shown = 0.0
        self._round = -1
        self._live: Live | None = None

    def start(self) -> None:
        """Begin to show."""
        if not self._quiet and self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def stop(self) -> None:
        """Take the live table away; the notes stay. Safe to call twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def note(self, sentence: str) -> None:
        """Say that something happened."""
        line = f"{self._seconds():4.0f} s  {sentence}"
        self._notes.append(line)
        if self._quiet:
            return
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False)
            self.update(now=True)
        else:
            self._console.print(line, markup=False, highlight=False)

    def update(self, now: bool = False) -> None:
        """Show what is new, at most a few times a second."""
        if self._quiet:
            return
        elapsed = self._seconds()
        if self._live is None:
            self._plain(elapsed)
        elif now or elapsed - self._shown >= REFRESH.total_seconds():
            self._shown = elapsed
            self._live.update(render(self._facts, elapsed), refresh=True)

    def _plain(self, elapsed: float) -> None:
        """A line per committed round, and one now and then while there is none."""
        committed = self._facts.history.committed
        if committed > self._round:
            self._round = committed
            self._shown = elapsed
            self.note(headline(self._facts))
        elif elapsed - self._shown >= _SLOWEST_PLAIN.total_seconds():
            self._shown = elapsed
            waits = {
                f"{node.name}: {node.sentence or node.phase}" for node in self._facts.history if node.phase
            }
            self.note("; ".join(sorted(waits)) or "the first node starts")

    def _seconds(self) -> float:
        return time.monotonic() - self._began


def headline(facts: Facts) -> str:
    """The run in one line."""
    commits = facts.history.commits()
    words = [f"{len(commits)} of {facts.options.rounds} rounds committed"]
    losses = facts.history.evaluations()
    if commits:
        words.append(f"{len(roster(commits[max(commits)]))} members in it")
    if losses:
        words.append(f"validation loss {losses[max(losses)]:.3f}")
    rate = sum(node.tokens_per_second or 0.0 for node in facts.history if node.training is not None)
    if rate:
        words.append(f"{rate:,.0f} tokens/s")
    return ", ".join(words)


def render(facts: Facts, elapsed: float) -> RenderableType:
    """The live table.

    Args:
        facts: So far.
        elapsed: Seconds since the demo began.
    """
    table = Table(expand=True, box=None, pad_edge=False)
    for name, options in (
        ("node", {}),
        ("round", {"justify": "right"}),
        ("phase", {}),
        ("what it does, and why it waits", {"ratio": 1, "no_wrap": True, "overflow": "ellipsis"}),
        ("loss", {"justify": "right"}),
        ("tokens/s", {"justify": "right"}),
        ("sent", {"justify": "right"}),
    ):
        table.add_column(name, **options)  # type: ignore[arg-type]
    for node in facts.history:
        table.add_row(*_row(facts, node))
    title = f"A swarm on this machine · {elapsed:.0f} s"
    return Panel(Group(table, Text(), Text(headline(facts), style="bold")), title=title, border_style="dim")


def _row(facts: Facts, node: NodeHistory) -> tuple[RenderableType, ...]:
    state = fate(facts, node.name)
    if state:
        return (node.name, "", Text(state, style="dim"), "", "", "", _sent(node))
    if not node.phase:
        joins = (
            f"joins when round {facts.script.join} begins"
            if node.name == facts.cast.joiner
            else "not started"
        )
        return (node.name, "", "", Text(joins, style="dim"), "", "", "")
    phase = "training" if node.training is not None else node.phase
    words = node.sentence or node.reason
    if node.reducing is not None:
        phase, words = "reducing", f"{node.reducing.fraction:4.0%} of the all-reduce. {words}"
    return (
        node.name,
        str(node.round),
        Text(phase, style=_PHASE_STYLES.get(phase, "")),
        Text(_with_names(facts, words)),
        f"{node.loss:.3f}" if node.loss is not None else "",
        f"{node.tokens_per_second:,.0f}" if node.training is not None and node.tokens_per_second else "",
        _sent(node),
    )


def _with_names(facts: Facts, words: str) -> str:
    """A node's sentence with names instead of ends of peer ids."""
    for node in facts.history:
        if node.peer:
            words = words.replace(node.peer[-6:], node.name)
    return words


def fate(facts: Facts, name: str) -> str:
    """What became of a node that is no more; empty while it lives."""
    status = facts.deeds.exits.get(name)
    if name == facts.cast.founder and Step.KILL in facts.deeds.steps:
        return f"killed in round {facts.deeds.done[Step.KILL]}"
    if status is None:
        return ""
    if name == facts.cast.leaver and Step.LEAVE in facts.deeds.steps:
        return f"left in round {facts.deeds.done[Step.LEAVE]}, exit status {status}"
    return f"ended, exit status {status}"


def _sent(node: NodeHistory) -> str:
    total = node.bytes_sent["total"]
    return str(Bytes(total)) if total else ""


def closing(report: Mapping[str, Any], cast: Cast) -> RenderableType:
    """The table, samples and verdict at the end."""
    parts: list[RenderableType] = [
        Text(),
        _figures(report),
        Text(),
        _rounds(report),
        Text(),
        _nodes(report, cast),
    ]
    for number, sample in enumerate(report["samples"], 1):
        parts += [
            Text(),
            Panel(Text(sample), title=f"generated sample {number}", title_align="left", border_style="dim"),
        ]
    parts += [Text(), *(_check(each) for each in report["checks"]), Text(), _verdict(report)]
    return Group(*parts)


def _figures(report: Mapping[str, Any]) -> Table:
    table = Table(
        title="What came out",
        title_justify="left",
        title_style="bold",
        box=None,
        show_header=False,
        pad_edge=False,
    )
    table.add_column()
    table.add_column()
    loss, sent, kill = report["validation_loss"], report["bytes"], event_of(report, "kill")
    rows: list[tuple[str, str]] = [
        (
            "validation loss",
            f"{_number(loss['start'], '.3f')} → {_number(loss['end'], '.3f')} nats per token",
        ),
        ("rounds committed", str(report["rounds"])),
        (
            "reduction of bytes",
            f"{_number(sent['reduction_vs_fp32_every_step'], '.1f')} × against fp32 gradients at every step",
        ),
        ("share of time computing", _number(report["compute_utilisation"], ".0%")),
        ("from the kill to the next commit", f"{_number(kill and kill['seconds_to_next_commit'], '.1f')} s"),
        ("digests on the survivors", "equal" if report["digests_equal"] else "NOT EQUAL"),
        ("memory at most", str(Bytes(report["peak_memory_bytes"]))),
        ("time", f"{report['seconds']:.0f} s" + (", resumed" if report["resumed"] else "")),
    ]
    baseline = report.get("baseline")
    if baseline and baseline.get("validation_loss") is not None:
        rows.insert(
            1,
            (
                "synchronous baseline",
                f"{_number(baseline['validation_loss'], '.3f')} nats per token after {baseline['tokens']:,} tokens; "
                f"gap {_number(baseline['gap'], '+.3f')}",
            ),
        )
    for row in rows:
        table.add_row(*row)
    return table


def _rounds(report: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("round", "members", "validation loss", "training loss", "tokens", "attempts", "seconds"):
        table.add_column(name, justify="right")
    for each in report["per_round"]:
        table.add_row(
            str(each["round"]),
            str(len(each["members"])),
            _number(each["validation_loss"], ".3f"),
            _number(each["training_loss"], ".3f"),
            f"{each['tokens']:,}",
            str(each["attempts"]),
            _number(each["seconds"], ".1f"),
        )
    return table


def _nodes(report: Mapping[str, Any], cast: Cast) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("node")
    table.add_column("for rounds", justify="right")
    table.add_column("for state", justify="right")
    table.add_column("all", justify="right")
    table.add_column("digest of parameters, of momentum, or its end", overflow="fold")
    sent = report["bytes"]
    for name in cast.names:
        digest = report["digests"].get(name)
        end = (
            f"{digest['parameters'][:16]}  {digest['momentum'][:16]}"
            if digest
            else report["nodes"][name]["end"]
        )
        table.add_row(
            name,
            str(Bytes(sent["sent_per_node"].get(name, 0))),
            str(Bytes(sent["state_per_node"].get(name, 0))),
            str(Bytes(sent["total_per_node"].get(name, 0))),
            end,
        )
    return table


def _check(check: Mapping[str, Any]) -> Text:
    mark = Text("  ✓ ", style="green") if check["ok"] else Text("  ✗ ", style="red")
    return mark.append(check["name"], style="" if check["ok"] else "bold")


def _verdict(report: Mapping[str, Any]) -> RenderableType:
    if report["ok"]:
        words = "The demo showed all that it promises."
        if report["resumed"]:
            words += f" It was resumed from round {report['resumed_from_round']}, the last committed one."
        return Text(words, style="bold green")
    text = Text("The demo failed:", style="bold red")
    for failure in report["failures"]:
        text.append(f"\n  {failure}", style="default")
    return text


def event_of(report: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """The report's event of a kind."""
    return next((each for each in report["events"] if each["kind"] == kind), None)


def _number(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else "–"
