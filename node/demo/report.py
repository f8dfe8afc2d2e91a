"""`report.json` and `report.html`: what the demo came to."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from node.demo.deeds import Facts
from node.demo.figures import (
    compute_utilisation,
    fp32_every_step_bytes,
    reduction,
    seconds_to_next_commit,
    tokens_committed,
)
from node.demo.history import NodeHistory, number, roster
from node.demo.scenario import Step
from node.demo.verdict import SAMPLES, Check
from node.demo.view import fate
from node.eventlog import Event
from node.machine import Machine, software_version

SCHEMA = 1


def samples_of(facts: Facts) -> tuple[str, ...]:
    """Generated texts, the newest first: of the nodes that finished, else of the exported model."""
    found = [
        (number(event, "round"), event.t, str(event.get("text") or ""))
        for node in facts.history
        for event in node.of("sample")
    ]
    texts = [text for _, _, text in sorted(found, reverse=True) if text.strip()]
    texts += [str(text) for text in facts.deeds.model.get("samples") or ()]
    return tuple(dict.fromkeys(texts))[:SAMPLES]


def make_report(
    facts: Facts, checks: Sequence[Check], samples: Sequence[str], machine: Machine
) -> dict[str, Any]:
    """All that the demo came to, in JSON's types."""
    losses = list(facts.history.evaluations().values())
    failures = [sentence for check in checks for sentence in check.wrong]
    sent = {node.name: node.bytes_sent for node in facts.history}
    digests = _digests(facts)
    deeds = facts.deeds
    return {
        "schema": SCHEMA,
        "ok": not failures,
        "failures": failures,
        "checks": [{"name": check.name, "ok": check.ok} for check in checks],
        "options": facts.options.plain(),
        "version": software_version(),
        "machine": {"cores": machine.cores, "memory": machine.memory_total, "system": machine.system},
        "parameters": facts.parameters,
        "rounds": len(facts.history.commits()),
        "validation_loss": {
            "start": losses[0] if losses else None,
            "end": losses[-1] if losses else None,
        },
        "evaluations": [
            {"round": round, "loss": loss} for round, loss in facts.history.evaluations().items()
        ],
        "per_round": _rounds(facts),
        "tokens": tokens_committed(facts),
        "digests": digests,
        "digests_equal": len(digests) == len(facts.cast.survivors)
        and len({tuple(sorted(each.items())) for each in digests.values()}) == 1,
        "compute_utilisation": compute_utilisation(facts),
        "bytes": {
            "sent_per_node": {name: each["rounds"] for name, each in sent.items()},
            "state_per_node": {name: each["state"] for name, each in sent.items()},
            "total_per_node": {name: each["total"] for name, each in sent.items()},
            "fp32_every_step": fp32_every_step_bytes(facts),
            "reduction_vs_fp32_every_step": reduction(facts),
        },
        "events": _events(facts),
        "nodes": {
            node.name: {
                "peer": node.peer,
                "end": fate(facts, node.name),
                "exit_status": deeds.exits.get(node.name),
            }
            for node in facts.history
        },
        "samples": list(samples),
        "model": deeds.model,
        "baseline": _baseline(facts, losses[-1] if losses else None),
        "peak_memory_bytes": deeds.peak_memory,
        "seconds": _seconds(facts),
        "resumed": deeds.resumed,
        "resumed_from_round": _resumed_from(facts),
    }


def write_report(folder: Path, report: Mapping[str, Any], page: str) -> str:
    """Write both files, each at once, and return the JSON text."""
    content = json.dumps(report, indent=2)
    for name, text in (("report.json", content + "\n"), ("report.html", page)):
        fresh = folder / f".{name}.new"
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, folder / name)
    return content


def _digests(facts: Facts) -> dict[str, dict[str, str]]:
    """Of the survivors that finished."""
    return {
        name: {what: str(event.get(what)) for what in ("digest", "parameters", "momentum")}
        for name in facts.cast.survivors
        if (event := facts.history[name].finished) is not None
    }


def _rounds(facts: Facts) -> list[dict[str, Any]]:
    losses = facts.history.evaluations()
    found: list[dict[str, Any]] = []
    before: float | None = None
    for round, commit in facts.history.commits().items():
        # An interrupted training goes on with a second event, whose tokens count those of the first too.
        trained = [event for node in facts.history if (event := _last_training(node, round)) is not None]
        tokens = sum(number(event, "tokens") for event in trained)
        loss = sum(float(event["loss"]) * number(event, "tokens") for event in trained)
        began = [
            event.t
            for node in facts.history
            for event in node.of("train.begin")
            if number(event, "round") == round
        ]
        since = before if before is not None else min(began, default=commit.t)
        found.append(
            {
                "round": round,
                "t": commit.t,
                "members": list(facts.history.names_of(roster(commit))),
                "tokens": number(commit, "tokens"),
                "partial_tokens": number(commit, "partial_tokens"),
                "attempts": number(commit, "attempt") + 1,
                "training_loss": loss / tokens if tokens else None,
                "validation_loss": losses.get(round + 1),
                "seconds": commit.t - since,
            }
        )
        before = commit.t
    return found


def _last_training(node: NodeHistory, round: int) -> Event | None:
    ends = [event for event in node.of("train.end") if number(event, "round") == round]
    return ends[-1] if ends and isinstance(ends[-1].get("loss"), int | float) else None


def _events(facts: Facts) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for step in Step:
        event = facts.deeds.steps.get(step)
        if event is not None:
            entry: dict[str, Any] = {
                "kind": step.value,
                "node": event.get("node"),
                "round": number(event, "round"),
                "t": event.t,
                "seconds_to_next_commit": seconds_to_next_commit(facts, step),
            }
            if step is Step.KILL:
                entry["fraction"] = event.get("fraction")
            found.append(entry)
    for start in facts.deeds.starts[1:]:
        later = [commit for commit in facts.history.commits().values() if commit.t > start]
        found.append(
            {
                "kind": "resume",
                "node": None,
                "round": _committed_before(facts, start) + 1,
                "t": start,
                "seconds_to_next_commit": min(each.t for each in later) - start if later else None,
            }
        )
    return sorted(found, key=lambda each: float(each["t"]))


def _committed_before(facts: Facts, t: float) -> int:
    return max((round for round, commit in facts.history.commits().items() if commit.t <= t), default=-1)


def _resumed_from(facts: Facts) -> int | None:
    return _committed_before(facts, facts.deeds.starts[-1]) if facts.deeds.resumed else None


def _baseline(facts: Facts, ours: float | None) -> dict[str, Any] | None:
    if not facts.deeds.compared:
        return None
    found = dict(facts.deeds.baseline)
    loss = found.get("validation_loss")
    found["gap"] = ours - loss if ours is not None and isinstance(loss, int | float) else None
    return found


def _seconds(facts: Facts) -> float:
    """Of the last start alone."""
    deeds = facts.deeds
    if not deeds.starts:
        return 0.0
    ends = [node.events[-1].t for node in facts.history if node.events]
    return max(
        0.0,
        (deeds.ended if deeds.ended is not None else max(ends, default=deeds.starts[-1])) - deeds.starts[-1],
    )
