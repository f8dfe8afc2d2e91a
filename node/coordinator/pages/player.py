"""The run at an earlier time, made anew from its events: a slider for the time, and a player from there on."""

import asyncio
from collections.abc import Awaitable, Callable

from nicegui import ui
from nicegui.element import Element

from node.coordinator.database import StoreError
from node.coordinator.fold import fold
from node.coordinator.pages import words
from node.coordinator.pages.components import VALUE, Rows, Text, section, verdict_line
from node.coordinator.pages.site import Site
from node.coordinator.store import Store
from node.coordinator.verdict import PHASES, line, strip
from node.coordinator.view import View

PLACES = 1000
"""Steps of the slider."""

SPEEDS = ("10", "60", "600", "3600")
"""How many times faster than it happened."""

TICK = 0.5
"""Seconds between two pictures while it plays."""

_FAR = 600.0  # seconds: over a longer way the nearest stored view is a better beginning than the one at hand


class Replay:
    """Views of a store at times that mostly go forward: then only the events since are read.

    Args:
        store: Whose.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._view, self._at = View(), float("-inf")

    def at(self, time: float) -> View:
        """The view at a time, Unix seconds.

        Raises:
            StoreError: The database cannot be read.
        """
        if not 0 <= time - self._at <= _FAR:
            self._view = self._store.view(until=time)
        else:
            view = self._view
            for stored in self._store.facts(after=view.sequence, until=time):
                view, _ = fold(view, stored.fact, stored.sequence)
            self._view = view
        self._at = time
        return self._view


class Player:
    """The part of a page with slider, button and speed.

    Args:
        site: Whose run.
        problem: Says what keeps it from reading.

    Attributes:
        moved: Called with the view at each time that is shown.
    """

    def __init__(self, site: Site, problem: Callable[[str], None]) -> None:
        self._site, self._problem = site, problem
        self.moved: Callable[[View], Awaitable[None]] | None = None
        self._replay = Replay(site.service.store)
        self._times: tuple[float, float] | None = None
        self._time = 0.0
        self._busy = asyncio.Lock()
        with section("The run at an earlier time"):
            with Element("div").classes("bar"):
                self._slider = Text("input", "", "field").props(
                    f'type=range min=0 max={PLACES} aria-label="Time, from the first event to now"'
                )
                self._slider.style("width: min(100%, 480px)")
                self._chosen = Text("span", "now").props("data-testid=time")
            with Element("div").classes("bar"):
                self._button = Text("button", "▶ Play", "button").props("type=button")
                with Element("label"):
                    Text("span", "Speed ")
                    with Element("select").classes("field") as speed:
                        for each in SPEEDS:
                            Text("option", f"{each} times").props(f"value={each}")
            self._said = verdict_line()
            self._then = Rows(
                ("What", "Then"), "Move the slider, or play: the run is made anew from its events.", "The run then"
            )  # fmt: skip
        self._place(PLACES)
        self._then.show("", list)
        self._said(site.moment().line)
        self._speed = float(SPEEDS[0])
        self._timer = ui.timer(TICK, self._step, active=False)
        self._slider.on("change", lambda event: self._scrub(event.args), js_handler=VALUE)
        speed.on("change", lambda event: self._faster(event.args), js_handler=VALUE)
        self._button.on("click", self._toggle)

    def _faster(self, value: object) -> None:
        if value in SPEEDS:
            self._speed = float(str(value))

    async def _scrub(self, value: object) -> None:
        place = int(str(value)) if str(value).isdigit() else PLACES
        times = await self._read_times()
        if times is not None:
            await self._show(times[0] + (times[1] - times[0]) * min(place, PLACES) / PLACES)

    async def _toggle(self) -> None:
        if self._timer.active:
            self._pause()
            return
        times = await self._read_times()
        if times is None:
            return
        if not times[0] <= self._time < times[1]:
            self._time = times[0]
        self._button.say("⏸ Pause")
        self._timer.activate()

    def _pause(self) -> None:
        self._timer.deactivate()
        self._button.say("▶ Play")

    async def _step(self) -> None:
        times = self._times
        if times is None or self._busy.locked():
            return
        await self._show(min(self._time + self._speed * TICK, times[1]))
        if self._time >= times[1]:
            self._pause()

    def _place(self, place: int) -> None:
        """Move the slider. As an attribute, its value would be set anew with every change of the page."""
        ui.run_javascript(f"getHtmlElement({self._slider.id}).value = {place}")

    async def _read_times(self) -> tuple[float, float] | None:
        try:
            self._times = await asyncio.to_thread(self._site.service.store.times)
        except StoreError as error:
            self._problem(str(error))
            return None
        return self._times

    async def _show(self, time: float) -> None:
        async with self._busy:
            try:
                view = await asyncio.to_thread(self._replay.at, time)
            except StoreError as error:
                self._pause()
                self._problem(str(error))
                return
            self._time, times = time, self._times
            if times is not None and times[1] > times[0]:
                self._place(round((time - times[0]) / (times[1] - times[0]) * PLACES))
            self._chosen.say("").put("data-since", f"{time:.1f}")
            self._said(line(view, time))
            self._then.show(time, lambda: summary(view))
            if self.moved is not None:
                await self.moved(view)


def summary(view: View) -> list[tuple[str, str]]:
    """A view in some lines."""
    agreement, dots = view.agreement, strip(view)
    through = ", ".join(f"{phase} {sum(dot.reached for dot in dots[phase])}" for phase in PHASES)
    return [
        ("Round", str(view.tip.round + 1)),
        ("Members", f"{len(view.tip.taking_part)}, {len(view.tip.electorate)} of them vote"),
        ("Through each phase", through),
        ("Rounds decided", f"{view.totals.rounds:,}"),
        ("Tokens averaged", words.count(view.totals.tokens)),
        ("Agreement", f"{agreement.agree} of {agreement.said} after round {agreement.round}"),
        ("Refusals", f"{view.totals.refused:,}"),
        ("Operator's actions", str(len(view.actions))),
    ]
