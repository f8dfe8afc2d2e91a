"""What all pages share: the service, one look at it per second for all viewers, and the frame around every page."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from time import monotonic

from fastapi import FastAPI
from nicegui import Client, context, core, ui
from nicegui import app as nicegui_app
from nicegui.element import Element

from node.coordinator.actions import Actions
from node.coordinator.alerts import Alert, alerts
from node.coordinator.pages.components import Text, verdict_line
from node.coordinator.pages.words import safe
from node.coordinator.reading import Point
from node.coordinator.service import Service
from node.coordinator.verdict import Dot, Line, line, strip
from node.coordinator.view import View

TICK = 0.1
CHANGED, UNCHANGED = 0.4, 1.0
"""Seconds between two pictures of the run at least where something was learned, and at most."""

STATIC = Path(__file__).parent / "static"
ASSETS = "/dashboard"

LINKS = (
    ("/", "Overview"),
    ("/progress", "Progress"),
    ("/members", "Members"),
    ("/rounds", "Rounds"),
    ("/refusals", "Refusals"),
    ("/network", "Network"),
    ("/versions", "Checkpoints"),
    ("/rollouts", "Rollouts"),
    ("/credits", "Credits"),
    ("/audit", "Audit log"),
    ("/events", "Events"),
    ("/peers", "My node"),
    ("/operator", "Operator"),
)
"""The pages in the order of the navigation."""


@dataclass(frozen=True)
class Moment:
    """One look at the run, made once for all viewers."""

    now: float
    view: View
    trouble: str
    line: Line
    dots: dict[str, tuple[Dot, ...]]
    alerts: tuple[Alert, ...]


Refresh = Callable[[Moment], None]


class Site:
    """The dashboard of one service. All of it belongs to the web server's loop.

    Args:
        service: What is shown.
        actions: What the operator may do; None where the key is elsewhere.
        notice: Stands above every page, such as that the data is made up.
    """

    def __init__(self, service: Service, actions: Actions | None = None, notice: str = "") -> None:
        self.service, self.actions, self.notice = service, actions, notice
        self._followers: dict[str, list[tuple[Client, Refresh]]] = {}
        self._series: tuple[int, list[Point]] = (-3, [])
        self._moment: Moment | None = None
        self._shown, self._shown_at = View(), 0.0

    def moment(self) -> Moment:
        """The present, made anew where something was learned, or after half a second."""
        now = self.service.clock()
        held = self._moment
        if held is None or held.view is not self.service.view or not 0 <= now - held.now < 0.5:
            view, trouble = self.service.view, self.service.trouble
            held = Moment(
                now, view, trouble, line(view, now, trouble), strip(view), alerts(view, now, trouble)
            )
            self._moment = held
        return held

    def follow(self, refresh: Refresh) -> None:
        """Call with the present now, and while the page is open: each second, and soon after something was learned."""
        client = context.client
        mine = self._followers.setdefault(client.id, [])
        if not mine:
            client.on_delete(lambda: self._followers.pop(client.id, None))
        mine.append((client, refresh))
        refresh(self.moment())

    def tick(self) -> None:
        """Show every open page the present, where it is time."""
        now, view = monotonic(), self.service.view
        if not self._followers or now - self._shown_at < (UNCHANGED if view is self._shown else CHANGED):
            return
        self._shown, self._shown_at = view, now
        moment = self.moment()
        for mine in tuple(self._followers.values()):
            for client, refresh in mine:
                if client.has_socket_connection:
                    with client:
                        refresh(moment)

    async def series(self) -> list[Point]:
        """Decided rounds as points of charts; read once per round.

        Raises:
            StoreError: The database cannot be read.
        """
        tip = self.service.view.tip.round
        if self._series[0] != tip:
            self._series = (tip, await asyncio.to_thread(self.service.store.series, 500))
        return self._series[1]

    @contextmanager
    def page(self, title: str, here: str) -> Iterator[Element]:
        """The frame around a page; what is made within is its main part.

        Args:
            title: Its heading.
            here: Which link of the navigation it belongs to.
        """
        ui.add_head_html(f'<meta name="server-now" content="{self.service.clock():.3f}">')
        ui.add_head_html(f'<link rel="stylesheet" href="{ASSETS}/dashboard.css">')
        ui.add_head_html(f'<script defer src="{ASSETS}/dashboard.js"></script>')
        ui.page_title(f"{title} · {escape(safe(self.service.view.run.name, 40))}")
        Text("a", "To the content", "skip").props('href="#content"')
        with Element("header").classes("top"):
            with Element("div").classes("first"):
                name = Text("span", "", "run")
                Text("button", "Theme", "button").props("id=theme type=button")
            with Element("nav").props('aria-label="Pages"'):
                for path, text in LINKS:
                    link = Text("a", text).props(f'href="{path}"')
                    if path == here:
                        link.props("aria-current=page")
        with Element("div").props("id=content tabindex=-1") as main:
            if self.notice:
                Text("p", self.notice, "card")
            trouble = Text("p", "", "card bad").props("role=alert")
            said = verdict_line()
            Text("h1", title)
            yield main

        def refresh(moment: Moment) -> None:
            name.say(safe(moment.view.run.name) or "A run without a name")
            trouble.say(f"▲ {moment.trouble}" if moment.trouble else "").set_visibility(bool(moment.trouble))
            said(moment.line)

        self.follow(refresh)


def mount(site: Site, application: FastAPI, pages: tuple[Callable[[Site], None], ...]) -> None:
    """Put the pages on an application; once per process."""
    for add in pages:
        add(site)
    nicegui_app.add_static_files(ASSETS, STATIC)
    core.app.timer(TICK, site.tick)
    ui.run_with(
        application, title="Run", dark=None, tailwind=False, show_welcome_message=False, favicon="◎",
        binding_refresh_interval=None, message_history_length=200,
    )  # fmt: skip
