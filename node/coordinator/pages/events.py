"""Page 13: the log of what was learned, and the run as it was at an earlier time."""

import asyncio
import json
from functools import partial

from nicegui import ui
from nicegui.element import Element

from node.coordinator.database import StoreError
from node.coordinator.facts_json import kind_of, subject_of
from node.coordinator.pages import words
from node.coordinator.pages.components import VALUE, Cell, Rows, Text, peer_link, section, verdict_line, when
from node.coordinator.pages.site import Site
from node.coordinator.reading import Stored
from node.coordinator.verdict import line
from node.coordinator.view import View
from node.coordinator.view_json import plain

_PAGE = 100


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/events")
    async def events() -> None:
        with site.page("Events", "/events"):
            problem = Text("p", "", "card bad").props("role=alert")
            problem.set_visibility(False)
            with section("The run at an earlier time"):
                with Element("div").classes("bar"):
                    slider = Text("input", "", "field").props(
                        'type=range min=0 max=1000 value=1000 aria-label="Time, from the first event to now"'
                    )
                    slider.style("width: min(100%, 480px)")
                    chosen = Text("span", "now")
                said = verdict_line()
                then = Rows(("What", "Then"), "Move the slider: the run is replayed from its events up to that time.",
                            "The run then")  # fmt: skip
                then.show("", list)
                said(site.moment().line)
            with section("The newest of what was learned"):
                table = Rows(("No.", "When", "About", "What", "Trust", "Content"), "Nothing yet.", "Events")
            try:
                newest = await asyncio.to_thread(site.service.store.newest, _PAGE)
            except StoreError as error:
                problem.say(str(error)).set_visibility(True)
                return
            view = site.service.view
            table.show(0, lambda: [_row(view, each) for each in newest])

            async def scrub(place: int) -> None:
                try:
                    times = await asyncio.to_thread(site.service.store.times)
                    if times is None:
                        return
                    at = times[0] + (times[1] - times[0]) * place / 1000
                    past = await asyncio.to_thread(site.service.store.view, at)
                except StoreError as error:
                    problem.say(str(error)).set_visibility(True)
                    return
                chosen.say("").put("data-since", f"{at:.1f}")
                said(line(past, at))
                then.show(at, lambda: summary(past))

            slider.on("change", lambda event: scrub(max(0, min(1000, int(event.args)))), js_handler=VALUE)


def summary(view: View) -> list[tuple[str, str]]:
    """A view in some lines."""
    agreement = view.agreement
    return [
        ("Round", str(view.tip.round + 1)),
        ("Members", f"{len(view.tip.taking_part)}, {len(view.tip.electorate)} of them vote"),
        ("Rounds decided", f"{view.totals.rounds:,}"),
        ("Tokens averaged", words.count(view.totals.tokens)),
        ("Agreement", f"{agreement.agree} of {agreement.said} after round {agreement.round}"),
        ("Refusals", f"{view.totals.refused:,}"),
        ("Operator's actions", str(len(view.actions))),
    ]


def _row(view: View, stored: Stored) -> tuple[Cell, ...]:
    fact, about = stored.fact, subject_of(stored.fact)
    kind = getattr(fact, "kind", "")
    content = plain(getattr(fact, "fields", None) or {
        name: value for name, value in vars(fact).items() if name not in ("seen_at", "source", "trust", "roster")
    })  # fmt: skip
    return (
        str(stored.sequence), partial(when, fact.seen_at), partial(peer_link, view, about) if about else "the run",
        words.safe(f"{kind_of(fact)} {kind}"), fact.trust,
        words.safe(json.dumps(content, ensure_ascii=False), 160),
    )  # fmt: skip
