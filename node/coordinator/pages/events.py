"""Page 13: the log of what was learned, filtered, and the run as it was at an earlier time."""

import asyncio
import json
from collections.abc import Callable
from functools import partial

from nicegui import ui
from nicegui.element import Element

from node.coordinator.database import StoreError
from node.coordinator.facts_json import KINDS as FACTS
from node.coordinator.facts_json import kind_of, subject_of
from node.coordinator.pages import words
from node.coordinator.pages.components import VALUE, Cell, Rows, Text, peer_link, section, when
from node.coordinator.pages.peers import matching
from node.coordinator.pages.player import Player
from node.coordinator.pages.site import Site
from node.coordinator.reading import Stored
from node.coordinator.view import View
from node.coordinator.view_json import plain
from node.reporting import KINDS as EVENTS

_PAGE = 100


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/events")
    async def events() -> None:
        with site.page("Events", "/events"):
            problem = Text("p", "", "card bad").props("role=alert")
            problem.set_visibility(False)

            def say(sentence: str) -> None:
                problem.say(sentence).set_visibility(bool(sentence))

            player, log = Player(site, say), _Log(site, say)
            player.moved = log.up_to
            await log.show()


class _Log:
    """The newest events up to a time, filtered by kind and node."""

    def __init__(self, site: Site, say: Callable[[str], None]) -> None:
        self._site, self._say = site, say
        self._kind = self._node = ""
        self._before: int | None = None
        self._older: int | None = None
        self._one_at_a_time = asyncio.Lock()
        with section("What was learned, newest first"):
            with Element("div").classes("bar"):
                with Element("label"):
                    Text("span", "Kind ")
                    with Element("select").classes("field") as kind:
                        Text("option", "all").put("value", "")
                        for each in (*sorted(FACTS), *sorted(EVENTS)):
                            Text("option", each).put("value", each)
                node = Text("input", "", "field").props(
                    'type=search placeholder="Node: peer id or name" aria-label="Only of this node" size=24'
                )
                self._more = Text("button", "Older", "button").props("type=button")
                newest = Text("button", "Newest", "button").props("type=button")
            self._table = Rows(
                ("No.", "When", "About", "What", "Trust", "Content"), "Nothing of the kind.", "Events"
            )
        kind.on("change", lambda event: self._only(kind=str(event.args)), js_handler=VALUE)
        node.on("input", lambda event: self._only(node=str(event.args)[:80]), throttle=0.3, js_handler=VALUE)
        self._more.on("click", self._page_back)
        newest.on("click", lambda: self._from(None))

    async def up_to(self, view: View) -> None:
        """Show what was learned before a view."""
        await self._from(view.sequence + 1)

    async def show(self) -> None:
        """Read and show what is wanted by the time that the read before is done."""
        async with self._one_at_a_time:
            await self._show()

    async def _show(self) -> None:
        view, peer = self._site.service.view, ""
        if self._node:
            found = matching(view, self._node, 1)
            if not found:
                self._table.show("", list)
                return
            peer = found[0].peer
        kinds = (self._kind,) if self._kind else ()
        read = partial(
            self._site.service.store.newest, _PAGE, peer=peer, kinds=kinds, before=self._before
        )  # fmt: skip
        try:
            page = await asyncio.to_thread(read)
        except StoreError as error:
            self._say(str(error))
            return
        self._say("")
        self._older = page[-1].sequence if len(page) == _PAGE else None
        self._more.set_visibility(self._older is not None)
        self._table.show(tuple(each.sequence for each in page), lambda: [_row(view, each) for each in page])

    async def _only(self, kind: str | None = None, node: str | None = None) -> None:
        if kind is not None and (not kind or kind in FACTS or kind in EVENTS):
            self._kind = kind
        if node is not None:
            self._node = node.strip()
        await self.show()

    async def _page_back(self) -> None:
        if self._older is not None:
            await self._from(self._older)

    async def _from(self, before: int | None) -> None:
        self._before = before
        await self.show()


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
