"""What the operator may do to the run as a whole."""

from nicegui import ui
from nicegui.element import Element

from node.coordinator.pages import words
from node.coordinator.pages.acting import Offer, button
from node.coordinator.pages.components import Rows, Text, link, section
from node.coordinator.pages.site import Moment, Site

_OFFERS = (
    Offer("pause", "Pause", "Members finish the present round and begin no other."),
    Offer("resume", "Resume", "Members begin the next round."),
    Offer("parameter", "Change a parameter", "From a future round on; an empty value takes back that of the genesis.",
          ("name", "value")),
    Offer("reset", "Reset the roster", "Begins a new epoch from the last certified state, where no quorum is left."),
    Offer("finish", "Finish the run", "The next decided round is the last. This cannot be taken back."),
    Offer("revoke", "Revoke a delegation", "Its number is the value.", ("value",)),
)  # fmt: skip


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
