"""`report.json` and `report.html` of the demo of reinforcement learning."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from node.demo.svg import Bar, Line, Mark, line_chart, row_chart
from node.demo.verdict import Check
from node.demo_rl.facts import Facts
from node.demo_rl.plan import CHEAT, HONEST, TRAINER, VALIDATOR
from node.demo_rl.timeline import PHASES, added_share
from node.machine import Machine, software_version
from protocol.files import write_whole

SCHEMA = 2

_STYLES = {
    "generation": "applying", "training": "training", "verification": "deciding", "broadcast": "reducing",
    "coordination": "waiting", "network": "starting",
}  # fmt: skip
_LEGEND = {_STYLES[phase]: phase for phase in ("generation", "training", "verification", "broadcast")}


def make_report(facts: Facts, checks: Sequence[Check], machine: Machine) -> dict[str, Any]:
    """All that the demo came to, in JSON's types."""
    failures = [sentence for check in checks for sentence in check.wrong]
    ban, told, spent = facts.ban(), facts.told(), facts.processor()
    return {
        "schema": SCHEMA,
        "ok": not failures,
        "failures": failures,
        "checks": [{"name": check.name, "ok": check.ok} for check in checks],
        "options": facts.options.plain(),
        "version": software_version(),
        "machine": {"cores": machine.cores, "memory": machine.memory_total, "system": machine.system},
        "seconds": facts.seconds,
        "cpu_seconds": facts.cpu,
        "warm_start": facts.warm,
        "held_out_solved": [
            {"version": version, "solved": solved} for version, solved in sorted(facts.solved.items())
        ],
        "steps": [
            {
                name: event.get(name)
                for name in (
                    "round",
                    "groups",
                    "reward",
                    "solved",
                    "seconds",
                    "entropy",
                    "kl",
                    "clipped",
                    "norm",
                    "staleness",
                    "empties",
                )
            }
            for event in facts.steps
        ],
        "staleness": {str(age): groups for age, groups in sorted(facts.staleness().items())},
        "seconds_of": facts.summary(),
        "processor_seconds_of_a_step": spent,
        "broadcast_and_verification_add": None if spent is None else added_share(spent),
        "rollout_files": facts.rollouts(),
        "ban": None
        if ban is None
        else {
            "sentence": ban["sentence"],
            "evidence": ban["evidence"],
            "told": told["reason"] if told is not None else "",
            "seconds_after_joining": ban.t - facts.events[CHEAT][0].t,
        },
    }


def write_report(folder: Path, report: Mapping[str, Any], facts: Facts) -> str:
    """Write both; returns the JSON text.

    Raises:
        NodeError: STO_….
    """
    text = json.dumps(report, indent=1)
    write_whole(folder / "report.json", [text.encode()])
    write_whole(folder / "report.html", [page(report, facts).encode()])
    return text


def page(report: Mapping[str, Any], facts: Facts) -> str:
    """One page that needs nothing else."""
    style = resources.files("node.demo").joinpath("page.css").read_text(encoding="utf-8")
    words = "good" if report["ok"] else "bad"
    checks = "".join(
        f"<li>{'kept' if check['ok'] else 'not kept'}: {escape(str(check['name']))}</li>"
        for check in report["checks"]
    )
    failures = "".join(f"<li>{escape(str(each))}</li>" for each in report["failures"])
    points = tuple((each["version"], each["solved"]) for each in report["held_out_solved"])
    solved = Line("solved", "validation", points)
    steps = report["steps"]
    body = [
        f"<h1>Reinforcement learning among strangers</h1><p>intellect-node {escape(report['version'])}, "
        f"{report['machine']['cores']} cores, {report['seconds']:.0f} s, {report['cpu_seconds']:.0f} s of processor "
        f'time</p><ul class="verdict {words}">{checks}</ul><ul class="failures">{failures}</ul>',
        _section("Held-out tasks solved", line_chart([solved], x_label="policy version", y_label="share")),
        _section(
            "Reward, share of rollouts that solve their task",
            _chart(steps, ("reward", "solved"), "of trained groups"),
        ),
        _section(
            "Entropy, KL divergence from the sampling policy",
            _chart(steps, ("entropy", "kl"), "nats per token"),
        ),
        _section("Time", _time(facts)),
        _section("Seconds, medians", _table(report["seconds_of"])),
        _section("Processor time of a step in steady state", _processor(report)),
        _section("Groups trained on, by age in versions", _table(report["staleness"])),
        _section(
            "Rollout files by worker and verdict",
            "".join(f"<h3>{name}</h3>{_table(counts)}" for name, counts in report["rollout_files"].items()),
        ),
        _section("The cheat", _table(report["ban"] or {"banned": "no"})),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>Reinforcement learning among strangers</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _chart(steps: Sequence[Mapping[str, Any]], names: Sequence[str], y_label: str) -> str:
    styles = ("validation", "train")
    lines = [
        Line(name, style, tuple((step["round"], step[name]) for step in steps if step[name] is not None))
        for name, style in zip(names, styles, strict=False)
    ]
    return line_chart(lines, x_label="step", y_label=y_label)


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _table(values: Mapping[str, Any]) -> str:
    def shown(value: Any) -> str:
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    rows = "".join(
        f"<tr><td>{escape(str(key))}</td><td>{escape(shown(value))}</td></tr>"
        for key, value in values.items()
    )
    return f"<table>{rows}</table>"


def _time(facts: Facts) -> str:
    """What each node did: generates, trains, judges, moves policies; steps as guides."""
    rows: dict[str, list[Bar]] = {}
    kinds = (
        (TRAINER, "rollouts.step", "training"), (TRAINER, "policy.published", "reducing"),
        (VALIDATOR, "verdict.given", "deciding"), (VALIDATOR, "policy.brought", "reducing"),
        *((name, "rollouts.made", "applying") for name in (*HONEST, CHEAT)),
        *((name, kind, "reducing") for kind in ("policy.brought", "policy.running") for name in (*HONEST, CHEAT)),
    )  # fmt: skip
    for name, kind, style in kinds:
        for event in facts.of(name, kind):
            end = event.t - facts.began
            label = f"{kind} {float(event['seconds']):.2f} s"
            rows.setdefault(name, []).append(Bar(style, max(0.0, end - float(event["seconds"])), end, label))
    ban = facts.ban()
    names = list(rows)
    marks = (
        [Mark(ban.t - facts.began, "banned", names.index(CHEAT) if CHEAT in names else None)] if ban else []
    )
    guides = [(step.t - facts.began, str(int(step["round"]) + 1)) for step in facts.steps]
    return row_chart(rows, legend=_LEGEND, x_label="seconds", marks=marks, guides=guides)


def _processor(report: Mapping[str, Any]) -> str:
    """A step's processor time as one bar, phase by phase, and as numbers."""
    spent, added = report["processor_seconds_of_a_step"], report["broadcast_and_verification_add"]
    if spent is None:
        return "<p>Too few steps were taken to say.</p>"
    bars, end = [], 0.0
    for phase in PHASES:
        begin, end = end, end + spent[phase]
        bars.append(Bar(_STYLES[phase], begin, end, f"{phase} {spent[phase]:.2f} s"))
    legend = {style: phase for phase, style in _STYLES.items()}
    words = f"<p>Broadcast and verification add {added:.1%} to what generation and training need.</p>"
    return words + row_chart({"a step": bars}, legend=legend, x_label="processor seconds") + _table(spent)
