"""Page 6: the rounds, and one round with its time lines."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.element import Element

from node.coordinator.database import StoreError
from node.coordinator.pages import words
from node.coordinator.pages.components import COLOURS, FAINT, Rows, Text, link, name_of, section, when
from node.coordinator.pages.grids import UNITS, Grid, Row, column, peer_column, rounded
from node.coordinator.pages.site import Moment, Site
from node.coordinator.view import Round, View
from node.coordinator.view_json import restored

SPANS = (
    ("Compute", "compute", "computed"),
    ("Encode", "computed", "encoded"),
    ("Send", "encoded", "ready"),
    ("Reduce", "reduce", "reduced"),
    ("Certify", "reduced", "voted"),
    ("Apply", "voted", "applied"),
)
"""The spans of a time line, from which mark to which."""

_SHOWN = 64  # members whose time lines are drawn at once; the table has all


def add(site: Site) -> None:
    """Add the pages."""

    @ui.page("/rounds")
    async def rounds(before: int = 0) -> None:
        with site.page("Rounds", "/rounds"), section("Decided rounds, newest first"):
            table = Rows(
                ("Round", "Outcome", "Contributors", "Tokens", "Took", "Attempts", "Decided"),
                "No round was decided yet.", "Decided rounds",
            )  # fmt: skip
            older = link("Older rounds", "/rounds")
            older.set_visibility(False)
            try:
                page = await asyncio.to_thread(site.service.store.rounds, 50, before or None)
            except StoreError as error:
                Text("p", str(error)).props("role=alert")
                return
            found = [_round_of(each) for each in page]
            table.show(len(found), lambda: [
                (partial(link, f"Round {each.round}", f"/rounds/{each.round}"), each.outcome, f"{len(each.roster)}",
                 words.count(each.tokens), words.seconds(each.decided_at - each.began_at) if each.began_at else "—",
                 f"{each.attempts}", partial(when, each.decided_at))
                for each in found
            ])  # fmt: skip
            if len(found) == 50:
                older.put("href", f"/rounds?before={found[-1].round}").set_visibility(True)

    @ui.page("/rounds/{number}")
    async def one(number: int) -> None:
        with site.page(f"Round {number}", "/rounds"):
            view = site.service.view
            held = view.rounds.get(str(number))
            if held is None:
                try:
                    stored = await asyncio.to_thread(site.service.store.round, number)
                except StoreError as error:
                    Text("p", str(error), "card").props("role=alert")
                    return
                held = _round_of(stored) if stored else None
            with Element("p"):
                link("◀ Round before", f"/rounds/{number - 1}")
                Text("span", " · ")
                link("Round after ▶", f"/rounds/{number + 1}")
            if held is None:
                Text("p", "There is no such round, or not yet.", "card")
                return
            _one(site, held)


def _round_of(content: Mapping[str, Any]) -> Round:
    """A round from its stored JSON."""
    return restored({"rounds": {"": content}}).rounds[""]


def _one(site: Site, entry: Round) -> None:
    with section("What it decided"):
        facts = Element("dl").classes("facts")
    with section("Time line of each member"):
        Text("p", "Solid: what a member did when, in seconds since the round began, by its own word. The first "
             f"{_SHOWN} members are drawn; the table below has all.", "soft")  # fmt: skip
        drawn = ui.echart(timeline(site.service.view, entry), renderer="svg").classes("chart")
        drawn.props["role"], drawn.props["aria-label"] = "img", "Time line of each member"
        drawn.style(f"height: {min(_SHOWN, max(1, len(entry.marks))) * 16 + 90}px")
    with section("Members"):
        table = Grid(COLUMNS, rows_of(site.service.view, entry), f"round-{entry.round}.csv")
    last: list[Round] = []

    def refresh(moment: Moment) -> None:
        now = moment.view.rounds.get(str(entry.round), entry)
        if last and last[0] is now:
            return
        first = not last
        last[:] = [now]
        facts.clear()
        with facts:
            _facts(moment.view, now)
        table.show(rows_of(moment.view, now))
        if not first:
            drawn.options["series"] = timeline(moment.view, now)["series"]
            drawn.update()

    site.follow(refresh)


def _facts(view: View, entry: Round) -> None:
    took = entry.decided_at - entry.began_at if entry.decided_at and entry.began_at else None
    clipped = sum(each.clip < 1 for each in entry.roster)
    for name, value in (
        ("Outcome", entry.outcome),
        ("Epoch", str(entry.epoch)),
        ("Attempts", str(entry.attempts)),
        ("Took", words.seconds(took)),
        ("Contributors", f"{len(entry.roster)} of {len(entry.expected)} expected"),
        (
            "Tokens",
            f"{words.count(entry.tokens)}, of these {words.count(entry.partial_tokens)} not in every chunk",
        ),
        ("Clipped", f"{clipped} of {len(entry.roster)} contributions"),
        ("Sent", f"{words.size(sum(entry.sent.values()))} by {len(entry.sent)} members that said it"),
        ("Votes", f"{len(entry.voters)} voters certify it" if entry.voters else "not said"),
        ("Orders", ", ".join(map(str, entry.orders)) or "none"),
        ("Value", entry.digest or "not decided yet"),
        ("Trained on", entry.base or "—"),
    ):
        Text("dt", name)
        Text("dd", value, "mono" if name in ("Value", "Trained on") else "")


COLUMNS = (
    peer_column(),
    column("outcome", "Outcome", 130, text=True),
    *(column(name.lower(), f"{name}, s", 115) for name, _, _ in SPANS),
    column("sent", "Sent, B", 110, shape=UNITS),
    column("tokens", "Tokens", 110, shape=UNITS),
    column("clip", "Clipped to", 120),
    column("included", "Included, %", 125),
    column("loss", "Loss", 100),
)
"""The columns of the table of members."""


def rows_of(view: View, entry: Round) -> list[Row]:
    """Everybody who was expected, spoke or is listed."""
    listed = {each.peer: each for each in entry.roster}
    found = []
    for peer in sorted({*entry.expected, *entry.marks, *listed}, key=lambda each: name_of(view, each)):
        mine, marks = listed.get(peer), entry.marks.get(peer, {})
        outcome = (
            "✔ accepted"
            if mine
            else "left"
            if peer in entry.left
            else "✖ not in"
            if entry.decided_at
            else "…"
        )
        spans = {
            name.lower(): round(marks[end] - marks[begin], 2) if begin in marks and end in marks else None
            for name, begin, end in SPANS
        }
        found.append({
            "peer": peer, "name": name_of(view, peer), "outcome": outcome, **spans, "sent": entry.sent.get(peer),
            "tokens": mine.tokens if mine else None, "clip": round(mine.clip, 3) if mine else None,
            "included": round(100 * mine.included, 1) if mine else None, "loss": rounded(entry.losses.get(peer)),
        })  # fmt: skip
    return found


def timeline(view: View, entry: Round) -> dict[str, Any]:
    """The chart of a round's time lines: for each member its spans one after another, with what lies between."""
    peers = sorted(entry.marks, key=lambda each: name_of(view, each))[:_SHOWN][::-1]
    names = [name_of(view, peer) for peer in peers]
    series: list[dict[str, Any]] = []
    ends = {peer: entry.began_at for peer in peers}
    for place, (name, begin, end) in enumerate(SPANS):
        before, spans = [], []
        for peer in peers:
            marks = entry.marks[peer]
            a, b = marks.get(begin), marks.get(end)
            if a is None or b is None or b < a:
                before.append(0.0)
                spans.append(0.0)
                continue
            before.append(round(max(0.0, a - ends[peer]), 2))
            spans.append(round(b - max(a, ends[peer]), 2) if b > ends[peer] else 0.0)
            ends[peer] = max(ends[peer], b)
        series.append(
            {
                "type": "bar",
                "stack": "line",
                "silent": True,
                "data": before,
                "itemStyle": {"color": "transparent"},
            }
        )
        look = {"color": COLOURS[place], "borderColor": "#808080", "borderWidth": 0.5}
        series.append(
            {
                "name": name,
                "type": "bar",
                "stack": "line",
                "data": spans,
                "barCategoryGap": "25%",
                "itemStyle": look,
            }
        )
    return {
        "animation": False,
        "grid": {"left": 8, "right": 16, "top": 56, "bottom": 8, "containLabel": True},
        "legend": {"top": 0, "left": 0, "data": [name for name, _, _ in SPANS]},
        "tooltip": {"trigger": "item", "confine": True},
        "xAxis": {
            "type": "value",
            "name": "",
            "axisLabel": {"formatter": "{value} s"},
            "splitLine": {"lineStyle": FAINT},
        },
        "yAxis": {"type": "category", "data": names, "axisLabel": {"width": 120, "overflow": "truncate"}},
        "series": series,
    }
