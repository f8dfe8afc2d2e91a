"""All pages on one application."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import background_tasks

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
from node.coordinator.pages.site import Site, mount
from node.coordinator.service import Service

PAGES = (
    overview.add, progress.add, members.add, rounds.add, refusals.add, network.add, versions.add, rollouts.add,
    credits.add, audit.add, events.add, peers.add, operator.add,
)  # fmt: skip


def no_pages(app: FastAPI) -> None:
    """No page at all."""


def mounted(
    service: Service, actions: Actions | None = None, notice: str = "",
    beside: Callable[[], Awaitable[None]] | None = None,
) -> Callable[[FastAPI], None]:  # fmt: skip
    """What ``make_app`` takes as ``more``: it mounts the dashboard. Once per process.

    Args:
        service: What is shown.
        actions: What the operator may do; None where the key is elsewhere.
        notice: Stands above every page.
        beside: Runs in the web server's loop for as long as it serves.
    """

    def more(app: FastAPI) -> None:
        mount(Site(service, actions, notice), app, PAGES)
        if beside is not None:
            nicegui_app.on_startup(lambda: background_tasks.create(beside()))

    return more
