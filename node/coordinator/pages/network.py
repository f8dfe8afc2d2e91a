"""Page 8: how peers reach each other: paths, round trips, and who cannot be reached."""

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import pairwise

from nicegui import background_tasks, ui
from nicegui.element import Element

from node.coordinator.database import StoreError
from node.coordinator.pages import words
from node.coordinator.pages.components import Figure, Rows, Text, peer_link, section, when
from node.coordinator.pages.matrix import READ, Drawn, Matrix
from node.coordinator.pages.site import Moment, Site
from node.coordinator.view import View
from node.latency import EVENT

_READ_EVERY = 15.0  # seconds
_BOUNDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/network")
    def network() -> None:
        with site.page("Network", "/network"):
            with Element("div").classes("cards"):
                relayed, direct = Figure("Relayed", "share of measured peers"), Figure("Direct", "share")
                middle, slowest = Figure("Round trip, median"), Figure("Round trip, slowest")
            with section("Round trips from the coordinator"):
                spread = Rows(("Round trip", "Direct", "Punched", "Relayed", "Other"), "Nothing was measured yet.",
                              "Round trips by path")  # fmt: skip
                Text("p", "Measured by this coordinator.", "soft")
            with section("Round trips among members"):
                Text("p", "Each member asks some others about once a minute; it is their own word.", "soft")
                matrix = Drawn()
            with section("Who cannot be reached, or was not heard for a minute"):
                silent = Rows(
                    ("Node", "Says it is reached", "Why", "Heard", "What to do"),
                    "Nobody.",
                    "Unreachable nodes",
                )

            read: list[float] = []

            async def again(view: View) -> None:
                with suppress(StoreError):  # the banner says it
                    found = await asyncio.to_thread(site.service.store.newest, READ, kinds=(EVENT,))
                    matrix.show(Matrix.of(found), view)

            def refresh(moment: Moment) -> None:
                view = moment.view
                if not read or moment.now - read[0] > _READ_EVERY:
                    read[:] = [moment.now]
                    background_tasks.create(again(view))
                measured = [each.figures for each in view.members.values() if each.figures.rtt is not None]
                times = sorted(each.rtt.value for each in measured if each.rtt is not None)
                newest = max((each.rtt.as_of for each in measured if each.rtt is not None), default=0.0)
                paths = Counter(each.path for each in measured)
                relayed.show(words.share(paths["relayed"], len(measured)), newest)
                direct.show(words.share(paths["direct"], len(measured)), newest)
                middle.show(words.seconds(times[len(times) // 2] if times else None), newest)
                slowest.show(words.seconds(times[-1] if times else None), newest)
                table = histogram(view)
                spread.show(table, lambda: table)
                gone = [
                    each for each in view.members.values()
                    if each.standing not in ("left", "banned")
                    and (each.doing.phase == "gone" or moment.now - each.heard_at > 60)
                ]  # fmt: skip
                silent.show(tuple((each.peer, each.heard_at) for each in gone[:50]), lambda: [
                    (partial(peer_link, view, each.peer), words.safe(each.who.reach) or "—",
                     words.safe(each.doing.sentence) if each.doing.phase == "gone" else "silent",
                     partial(when, each.heard_at), advice(each.who.reach)) for each in gone[:50]
                ])  # fmt: skip

            site.follow(refresh)


def histogram(view: View) -> list[tuple[str, ...]]:
    """How many peers have which round trip, by path."""
    counts: dict[int, Counter[str]] = {}
    for each in view.members.values():
        if each.figures.rtt is not None:
            place = sum(each.figures.rtt.value >= bound for bound in _BOUNDS)
            path = each.figures.path if each.figures.path in ("direct", "punched", "relayed") else "other"
            counts.setdefault(place, Counter())[path] += 1
    names = [f"under {words.seconds(_BOUNDS[0])}"]
    names += [f"{words.seconds(a)} to {words.seconds(b)}" for a, b in pairwise(_BOUNDS)]
    names.append(f"{words.seconds(_BOUNDS[-1])} and more")
    return [
        (names[place], *(str(found[path]) for path in ("direct", "punched", "relayed", "other")))
        for place, found in sorted(counts.items())
    ]


def advice(reach: str) -> str:
    """What the owner of a node that cannot be reached does."""
    if reach == "direct":
        return "Open its port in router and firewall, or check that it still runs."
    return "Check that it still runs, and that a node of the run is reachable and relays."
