"""What a person sees while the demo of reinforcement learning runs, and at its end."""

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

from node.demo_rl.facts import Facts
from node.demo_rl.plan import CHEAT, HONEST, NODES, TRAINER
from node.eventlog import Event

REFRESH = timedelta(milliseconds=500)
_NOTES = 8
_QUIET = timedelta(seconds=20)


class View:
    """A live table on a terminal; lines of text where the output is no terminal; nothing when quiet."""

    def __init__(self, facts: Facts, console: Console, *, quiet: bool) -> None:
        self._facts, self._console, self._quiet = facts, console, quiet
        self._notes: deque[str] = deque(maxlen=_NOTES)
        self._began, self._shown = time.monotonic(), 0.0
        self._steps = 0
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
        if self._quiet:
            return
        console = self._console if self._live is None else self._live.console
        console.print(f"{self._seconds():4.0f} s  {sentence}", markup=False, highlight=False, soft_wrap=True)

    def update(self) -> None:
        """Show what is new."""
        if self._quiet:
            return
        for event in self._facts.steps[self._steps :]:
            self._steps += 1
            self.note(step_line(self._facts, event))
            self._shown = self._seconds()
        if self._live is not None:
            self._live.update(render(self._facts, self._seconds()), refresh=True)
        elif self._seconds() - self._shown > _QUIET.total_seconds():
            self._shown = self._seconds()
            self.note(
                "; ".join(f"{name}: {doing(self._facts, name)}" for name in NODES if self._facts.events[name])
            )

    def _seconds(self) -> float:
        return time.monotonic() - self._began


def step_line(facts: Facts, step: Event) -> str:
    """A GRPO step in one line."""
    ages = ", ".join(f"{groups} of age {age}" for age, groups in sorted(dict(step["staleness"]).items()))
    return (
        f"step {int(step['round']) + 1} of {facts.options.steps}: reward {float(step['reward']):.3f}, "
        f"entropy {float(step['entropy']):.3f}, KL {float(step['kl']):.3f}, {step['groups']} groups ({ages})"
    )


def doing(facts: Facts, name: str) -> str:
    """What a node does now."""
    kinds = ("rollouts.waiting", "node.phase") if name == TRAINER else ("node.phase",)
    said = facts.of(name, *kinds)
    return str(said[-1]["sentence"]) if said else "starts"


def render(facts: Facts, elapsed: float) -> RenderableType:
    """The live table."""
    table = Table(expand=True)
    for column in ("node", "accepted", "refused", "what it does"):
        table.add_column(column, no_wrap=column != "what it does")
    rollouts = facts.rollouts()
    for name in NODES:
        counts = rollouts.get(name, {})
        refused = sum(count for code, count in counts.items() if code != "accepted")
        style = "red" if name == CHEAT and refused else ""
        shown = name in (*HONEST, CHEAT)
        table.add_row(
            name, str(counts.get("accepted", 0)) if shown else "", str(refused) if shown else "",
            doing(facts, name), style=style,
        )  # fmt: skip
    head = f"{len(facts.steps)} of {facts.options.steps} steps, {elapsed:.0f} s"
    if facts.steps:
        last = facts.steps[-1]
        head += f", reward {float(last['reward']):.3f}, policy version {facts.newest}"
    return Panel(Group(Text(head), table), title="reinforcement learning among strangers")


def closing(report: Mapping[str, Any]) -> str:
    """The last words."""
    lines = [f"{'ok  ' if check['ok'] else 'FAIL'}  {check['name']}" for check in report["checks"]]
    lines += [f"      {sentence}" for sentence in report["failures"]]
    solved = report["held_out_solved"]
    if solved:
        lines.append(
            f"Held-out tasks solved: {solved[0]['solved']:.1%} before, {solved[-1]['solved']:.1%} after."
        )
    if report["ban"]:
        lines.append(f"The cheat was told: {report['ban']['told']}")
    if report["processor_seconds_of_a_step"]:
        spent = ", ".join(f"{phase} {s:.2f}" for phase, s in report["processor_seconds_of_a_step"].items())
        lines.append(f"Processor seconds of a step: {spent}.")
        added = report["broadcast_and_verification_add"]
        lines.append(f"Broadcast and verification add {added:.1%} to generation and training.")
    lines.append(f"{report['seconds']:.0f} s, {report['cpu_seconds']:.0f} s of processor time.")
    return "\n".join(lines)
