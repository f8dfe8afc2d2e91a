"""What the operator may do to the run as a whole, whom invitations let in, and which orders wait."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from nicegui import background_tasks, ui
from nicegui.element import Element

from node.coordinator.pages import words
from node.coordinator.pages.acting import INVITATION, NAME, NUMBER, ROUND, VALUE, Offer, button
from node.coordinator.pages.components import Cell, Rows, Text, link, peer_link, section
from node.coordinator.pages.site import Moment, Site
from node.coordinator.view import View

_OFFERS = (
    Offer("pause", "Pause", "Members finish the present round and begin no other.", (ROUND,)),
    Offer("resume", "Resume", "Members begin the next round.", (ROUND,)),
    Offer("parameter", "Change a parameter", "From a future round on; an empty value takes back that of the genesis.",
          (NAME, VALUE, ROUND)),
    Offer("checkpoint", "Write a checkpoint", "Members write one after the next decided round."),
    Offer("audit", "Check the last round", "Every voter checks every reduced chunk of the last decided round."),
    Offer("reset", "Reset the roster", "Begins a new epoch from the last certified state, where no quorum is left."),
    Offer("finish", "Finish the run", "The next decided round is the last. This cannot be taken back.", (ROUND,)),
    Offer("revoke", "Revoke a delegation", "What it signs from then on is void.", (NUMBER,)),
)  # fmt: skip
_INVITE = Offer(
    "", "Invite", "Its token lets peers in where the policy is `invite`.", INVITATION, path="invitations"
)
_READ_EVERY = 5.0  # seconds


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/operator")
    def operator() -> None:
        with site.page("Operator", "/operator"):
            with section("The run"):
                if site.actions is None:
                    Text("p", "The operator's key is not on this node, so nothing can be ordered here.")
                Text("p", "Every action asks for the operator's token and a reason, is signed and numbered, acts once "
                     "a certified value names it, and stands in the audit log.", "soft")  # fmt: skip
                with Element("div").classes("bar"):
                    for offer in _OFFERS:
                        button(site, offer)
                Text("p", "To admit, ban or seat a node, open its page from the table of members.", "soft")
                link("Audit log", "/audit")
            if site.actions is not None:
                _kept(site)
            with section("Parameters that differ from the genesis"):
                table = Rows(("Name", "Value"), "None.", "Changed parameters")
                changeable = Text("p", "", "soft")

            def refresh(moment: Moment) -> None:
                held = moment.view.tip.parameters
                table.show(
                    dict(held),
                    lambda: [(words.safe(name), words.safe(value)) for name, value in held.items()],
                )
                changeable.say(f"The operator may change: {', '.join(moment.view.run.changeable) or 'none'}.")

            site.follow(refresh)


def _kept(site: Site) -> None:
    """Invitations and orders that wait, as the node with the key keeps them."""
    actions = site.actions
    assert actions is not None
    with section("Orders that wait"):
        waiting = Rows(("No.", "What", "About", "Acts", "Reason", ""), "None.", "Orders that wait")
    with section("Invitations"):
        with Element("div").classes("bar"):
            button(site, _INVITE)
        invitations = Rows(("No.", "For whom", "Used", "State", ""), "None.", "Invitations")
    read: list[tuple[float, object]] = []

    async def again(view: View) -> None:
        orders, invited = await asyncio.to_thread(
            lambda: (actions.listed("planned"), actions.listed("invitations"))
        )
        waiting.show(orders, lambda: [_order(site, view, each) for each in orders])
        invitations.show(invited, lambda: [_invitation(site, each) for each in invited[::-1]])

    def refresh(moment: Moment) -> None:
        done = moment.view.actions
        if not read or moment.now - read[0][0] > _READ_EVERY or read[0][1] is not done:
            read[:] = [(moment.now, done)]
            background_tasks.create(again(moment.view))

    site.follow(refresh)


def _order(site: Site, view: View, row: dict[str, Any]) -> tuple[Cell, ...]:
    number = int(row["number"])
    acts = f"from round {row['round']}" if row["round"] >= 0 else partial(_until, float(row["at"]))
    drop = Offer("drop", "Drop", f"Order {number} that waits is not given.", value=str(number))
    about: Cell = (
        partial(peer_link, view, row["peer"]) if row["peer"] else words.safe(f"{row['name']} {row['value']}")
    )
    return (
        str(number), words.safe(row["action"]), about, acts, words.safe(row["reason"], 200), _button(site, drop),
    )  # fmt: skip


def _invitation(site: Site, row: dict[str, Any]) -> tuple[Cell, ...]:
    number = int(row["number"])
    end = Offer("", "End", f"Invitation {number} lets nobody in any more; whom it let in stays.",
                path=f"invitations/{number}", method="DELETE")  # fmt: skip
    return (
        str(number), words.safe(row["note"]), f"{len(row['used'])} of {row['uses']}",
        partial(_until, float(row["expires_at"])) if row["open"] else "closed",
        _button(site, end) if row["open"] else "",
    )  # fmt: skip


def _button(site: Site, offer: Offer) -> Callable[[], None]:
    return partial(button, site, offer)


def _until(at: float) -> Text:
    """*At most 3 d more*, counted by the browser."""
    return Text("span").put("data-until", f"{at:.1f}")
