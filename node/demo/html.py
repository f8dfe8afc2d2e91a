"""`report.html`: one page that needs nothing else, with its charts drawn in. Pure; every text is escaped."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from node.demo.deeds import Facts
from node.demo.figures import segments
from node.demo.scenario import Step
from node.demo.svg import Bar, Line, Mark, line_chart, row_chart
from node.demo.view import event_of
from protocol.units import Bytes

_KINDS = {
    "takes inner steps": "training",
    "waits": "waiting",
    "all-reduce": "reducing",
    "votes": "deciding",
    "outer step": "applying",
    "starts": "starting",
}
_EVENTS = {"join": "joins", "kill": "killed", "leave": "told to leave", "resume": "demo goes on"}
_MEBI = 2**20


def page(report: Mapping[str, Any], facts: Facts) -> str:
    """The page.

    Args:
        report: As `report.make_report` gave it.
        facts: What it was made of, for the time line.
    """
    style = resources.files("node.demo").joinpath("page.css").read_text(encoding="utf-8")
    body = "\n".join(
        [
            _head(report),
            _tiles(report),
            _section(
                "Loss",
                "Nats per token. Validation is on files that nobody trains on, after each outer step.",
                _loss(report),
            ),
            _section(
                "Time",
                "What each node did, in seconds since the first one started. Dotted lines: commits of rounds.",
                _time(report, facts),
            ),
            _section("Bytes", _bytes_words(report), _bytes(report)),
            _section("Rounds", "", _rounds(report)),
            _section(
                "Nodes",
                "Digests of the outer parameters and the outer momentum at the end; equal digests mean equal bits.",
                _nodes(report),
            ),
            _section("Generated text", "", _samples(report)),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>A swarm on one machine</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def _head(report: Mapping[str, Any]) -> str:
    options = report["options"]
    words = (
        f"{options['nodes']} nodes, {options['rounds']} rounds of {options['inner_steps']} steps, "
        f"{options['workers_per_node']} worker(s) per node, seed {options['seed']}, "
        f"{report['parameters']:,} parameters; "
        f"intellect-node {report['version']} on {report['machine']['cores']} cores, {report['machine']['system']}"
    )
    failures = "".join(f"<li>{escape(str(each))}</li>" for each in report["failures"])
    verdict = (
        '<p class="verdict good">The demo showed all that it promises.</p>'
        if report["ok"]
        else f'<p class="verdict bad">The demo failed:</p><ul class="failures">{failures}</ul>'
    )
    resumed = (
        f"<p>It was broken off and went on from round {report['resumed_from_round']}, the last committed one.</p>"
        if report["resumed"]
        else ""
    )
    checks = "".join(
        f'<li class="{"good" if each["ok"] else "bad"}">{escape(str(each["name"]))}</li>'
        for each in report["checks"]
    )
    return (
        f'<h1>A swarm on one machine trains a language model</h1>\n<p class="soft">{escape(words)}</p>\n'
        f'<section>{verdict}{resumed}<ul class="checks">{checks}</ul></section>'
    )


def _tiles(report: Mapping[str, Any]) -> str:
    loss, sent = report["validation_loss"], report["bytes"]
    kill = event_of(report, "kill") or {}
    tiles = [
        (
            f"{_number(loss['start'], '.2f')} → {_number(loss['end'], '.2f')}",
            "validation loss, nats per token",
        ),
        (
            f"{_number(sent['reduction_vs_fp32_every_step'], '.0f')} ×",
            "fewer bytes than fp32 gradients at every step",
        ),
        (_number(report["compute_utilisation"], ".0%"), "of a round's time spent computing"),
        (f"{_number(kill.get('seconds_to_next_commit'), '.1f')} s", "from the kill to the next commit"),
        ("equal" if report["digests_equal"] else "not equal", "digests on all survivors"),
        (str(Bytes(report["peak_memory_bytes"])), "memory of all processes, at most"),
    ]
    baseline = report.get("baseline")
    if baseline and baseline.get("validation_loss") is not None:
        tiles.insert(
            1,
            (
                f"{_number(baseline['gap'], '+.3f')}",
                f"nats above the synchronous baseline, {baseline['validation_loss']:.3f}",
            ),
        )
    inside = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>' for value, what in tiles
    )
    return f'<div class="tiles">{inside}</div>'


def _loss(report: Mapping[str, Any]) -> str:
    rounds = report["per_round"]
    lines = [
        Line(
            "validation", "validation", tuple((each["round"], each["loss"]) for each in report["evaluations"])
        ),
        Line("training, mean of a round", "train", _points(rounds, "training_loss")),
    ]
    baseline = report.get("baseline")
    if baseline and baseline.get("validation_loss") is not None and rounds:
        ends = (
            (report["evaluations"][0]["round"], report["evaluations"][-1]["round"])
            if report["evaluations"]
            else (0, len(rounds))
        )
        lines.append(
            Line(
                "synchronous baseline at its end",
                "baseline",
                tuple((x, baseline["validation_loss"]) for x in ends),
            )
        )
    return line_chart(
        [line for line in lines if line.points], x_label="rounds committed", y_label="nats per token"
    )


def _points(rounds: Sequence[Mapping[str, Any]], name: str) -> tuple[tuple[float, float], ...]:
    return tuple((each["round"] + 1, each[name]) for each in rounds if each[name] is not None)


def _time(report: Mapping[str, Any], facts: Facts) -> str:
    begins = [node.events[0].t for node in facts.history if node.events]
    if not begins:
        return '<p class="none">No node has written anything.</p>'
    origin = min(begins)
    killed = facts.deeds.steps.get(Step.KILL)
    words = {style: what for what, style in _KINDS.items()}
    rows: dict[str, list[Bar]] = {}
    for node in facts.history:
        end = killed.t if killed is not None and node.name == facts.cast.founder else None
        rows[node.name] = [
            Bar(
                each.kind,
                each.begin - origin,
                each.end - origin,
                words[each.kind]
                + (f", round {each.round}" if each.round >= 0 else "")
                + f", {each.end - each.begin:.1f} s",
            )
            for each in segments(node, end)
        ]
    names = list(rows)
    marks = [
        Mark(
            each["t"] - origin,
            _EVENTS[each["kind"]],
            names.index(each["node"]) if each["node"] in names else None,
        )
        for each in report["events"]
    ]
    guides = [(each["t"] - origin, str(each["round"])) for each in report["per_round"]]
    legend = _KINDS
    return row_chart(rows, legend=legend, x_label="seconds", marks=marks, guides=guides)


def _bytes_words(report: Mapping[str, Any]) -> str:
    sent = report["bytes"]
    ours = sum(sent["sent_per_node"].values())
    return (
        "Written to sockets, framing and encryption included. All nodes together sent "
        f"{Bytes(ours)} for rounds; fp32 gradients at every step would have been {Bytes(sent['fp32_every_step'])}."
    )


def _bytes(report: Mapping[str, Any]) -> str:
    sent = report["bytes"]
    rows: dict[str, list[Bar]] = {}
    for name, rounds in sent["sent_per_node"].items():
        state = sent["state_per_node"][name]
        rows[name] = [
            Bar("rounds", 0.0, rounds / _MEBI, f"{Bytes(rounds)} for rounds"),
            Bar("state", rounds / _MEBI, (rounds + state) / _MEBI, f"{Bytes(state)} of state for joiners"),
        ]
    if not any(bar.end for bars in rows.values() for bar in bars):
        return '<p class="none">Nothing was sent.</p>'
    return row_chart(rows, legend={"rounds": "rounds", "state for joiners": "state"}, x_label="MiB sent")


def _rounds(report: Mapping[str, Any]) -> str:
    rows = [
        [
            str(each["round"]),
            ", ".join(each["members"]),
            _number(each["validation_loss"], ".3f"),
            _number(each["training_loss"], ".3f"),
            f"{each['tokens']:,}",
            str(each["attempts"]),
            _number(each["seconds"], ".1f"),
        ]
        for each in report["per_round"]
    ]
    heads = ["round", "members", "validation loss", "training loss", "tokens", "attempts", "seconds"]
    return _table(heads, rows, numbers={0, 2, 3, 4, 5, 6})


def _nodes(report: Mapping[str, Any]) -> str:
    rows = []
    for name, node in report["nodes"].items():
        digest = report["digests"].get(name)
        ends = (
            [f"<code>{escape(digest['parameters'])}</code>", f"<code>{escape(digest['momentum'])}</code>"]
            if digest
            else ["", ""]
        )
        rows.append([escape(name), f"<code>{escape(node['peer'])}</code>", escape(node["end"]), *ends])
    return _table(["node", "peer", "its end", "parameters", "momentum"], rows, plain=False)


def _samples(report: Mapping[str, Any]) -> str:
    return (
        "".join(f"<pre>{escape(str(each))}</pre>" for each in report["samples"])
        or '<p class="none">None.</p>'
    )


def _section(title: str, words: str, inside: str) -> str:
    lead = f'<p class="soft">{escape(words)}</p>' if words else ""
    return f'<section><h2>{escape(title)}</h2>{lead}<div class="wide">{inside}</div></section>'


def _table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: frozenset[int] | set[int] = frozenset(),
    plain: bool = True,
) -> str:
    def cell(tag: str, index: int, text: str, safe: bool) -> str:
        kind = ' class="number"' if index in numbers else ""
        return f"<{tag}{kind}>{text if safe else escape(text)}</{tag}>"

    head = "".join(cell("th", index, each, False) for index, each in enumerate(heads))
    body = "".join(
        f"<tr>{''.join(cell('td', index, each, not plain) for index, each in enumerate(row))}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _number(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else "–"
