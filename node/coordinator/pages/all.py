"""All pages on one application."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import background_tasks
from starlette.middleware import Middleware

from node.coordinator.actions import Actions
from node.coordinator.pages import (
    audit,
    credits,
    events,
    members,
    network,
    operator,
    overview,
    peers,
    progress,
    refusals,
    rollouts,
    rounds,
    versions,
)
from node.coordinator.pages.entry import Entry
from node.coordinator.pages.site import Site, mount
from node.coordinator.service import Service

PAGES = (
    overview.add, progress.add, members.add, rounds.add, refusals.add, network.add, versions.add, rollouts.add,
    credits.add, audit.add, events.add, peers.add, operator.add,
)  # fmt: skip


def mounted(
    service: Service, actions: Actions | None = None, notice: str = "",
    beside: Callable[[], Awaitable[None]] | None = None, public: bool = True,
) -> Callable[[FastAPI], None]:  # fmt: skip
    """What ``make_app`` takes as ``more``: it mounts the dashboard. Once per process.

    Args:
        service: What is shown.
        actions: What the operator may do; None where the key is elsewhere.
        notice: Stands above every page.
        beside: Runs in the web server's loop for as long as it serves.
        public: Whether everybody may read; else ``actions`` knows the token of who may.
    """

    def more(app: FastAPI) -> None:
        mount(Site(service, actions, notice), app, PAGES)
        if not public:
            assert actions is not None
            app.user_middleware.append(Middleware(Entry, actions=actions))  # within the guard
        if beside is not None:
            nicegui_app.on_startup(lambda: background_tasks.create(beside()))

    return more
