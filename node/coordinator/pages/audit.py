"""Page 12: what the operator did, why, and what it changed. Entries are only ever added."""

import asyncio
import json
from functools import partial

from nicegui import background_tasks, ui

from node.coordinator.database import StoreError
from node.coordinator.pages import words
from node.coordinator.pages.components import Cell, Rows, Text, link, peer_link, section, when
from node.coordinator.pages.site import Moment, Site
from node.coordinator.view import Action
from node.coordinator.view_json import restored

_PAGE = 100


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/audit")
    def audit(before: int = 0) -> None:
        with site.page("Audit log", "/audit"), section("What was done, newest first"):
            said = Text("p", "", "soft")
            table = Rows(
                ("No.", "When", "Who", "Did", "To", "Reason", "Changed", "Order", "Outcome"),
                "Nothing was done yet.", "Audit log",
            )  # fmt: skip
            older = link("Older entries", "/audit")
            older.set_visibility(False)
            shown: list[object] = []

            async def again(moment: Moment) -> None:
                try:
                    page = await asyncio.to_thread(site.service.store.audit, _PAGE, before or None)
                    broken = await asyncio.to_thread(site.service.store.audit_broken)
                except StoreError as error:
                    said.say(f"▲ {error} What follows is what this process knows.")
                    found = list(moment.view.actions[::-1])
                else:
                    stored = restored({"actions": [{**each, "at": each["seen_at"]} for each in page]}).actions
                    taken = {each.number: each for each in moment.view.actions}
                    found = [taken.get(each.number, each) for each in stored]
                    said.say(
                        "✔ Each entry names the one before by its digest, and none was altered." if broken is None
                        else f"✖ Entry {broken} is not as it was written."
                    )  # fmt: skip
                table.show(tuple((each.number, each.taken_up) for each in found), lambda: [
                    _row(moment, each) for each in found
                ])  # fmt: skip
                if len(found) == _PAGE:
                    older.put("href", f"/audit?before={found[-1].number}").set_visibility(True)

            def refresh(moment: Moment) -> None:
                if not shown or shown[0] is not moment.view.actions:
                    shown[:] = [moment.view.actions]
                    background_tasks.create(again(moment))

            site.follow(refresh)


def _row(moment: Moment, entry: Action) -> tuple[Cell, ...]:
    order = "none needed" if not entry.order else (
        f"{entry.order}, taken up by round {entry.taken_up}" if entry.taken_up >= 0 else f"{entry.order}, waiting"
    )  # fmt: skip
    return (
        str(entry.number), partial(when, entry.at), words.safe(entry.actor), words.safe(entry.action, 30),
        partial(peer_link, moment.view, entry.peer) if entry.peer else "the run", words.safe(entry.reason, 200),
        difference(entry), order, words.safe(entry.outcome, 200),
    )  # fmt: skip


def difference(entry: Action) -> str:
    """What an entry changed: ``paused: false → true``."""
    names = [
        name for name in {**entry.before, **entry.after} if entry.before.get(name) != entry.after.get(name)
    ]
    shown = (f"{name}: {_plain(entry.before.get(name))} → {_plain(entry.after.get(name))}" for name in names)
    return words.safe("; ".join(shown) or "nothing", 200)


def _plain(value: object) -> str:
    return "—" if value is None else value if isinstance(value, str) else json.dumps(value)
