"""The dialog in which an operator orders something: the token, why, and once more whether it is meant."""

from dataclasses import dataclass

from nicegui import ui
from nicegui.element import Element

from node.coordinator.actions import MAX_REASON, Wish
from node.coordinator.pages import words
from node.coordinator.pages.components import Text
from node.coordinator.pages.site import Site
from protocol.errors import NodeError


@dataclass(frozen=True)
class Offer:
    """An action as a button.

    Attributes:
        do: Its name, as in ``intellect-node admin``.
        text: What stands on the button.
        means: What it does, in a sentence.
        fields: Which more it needs: ``name``, ``value``.
    """

    do: str
    text: str
    means: str
    fields: tuple[str, ...] = ()


def button(site: Site, offer: Offer, peer: str = "") -> None:
    """A button that opens the dialog of an action; none where this coordinator has no key to act with."""
    if site.actions is not None:
        Text("button", offer.text, "button").props("type=button").on("click", lambda: _ask(site, offer, peer))


def _ask(site: Site, offer: Offer, peer: str) -> None:
    actions = site.actions
    if actions is None:
        return
    with ui.dialog() as dialog, Element("div").classes("card ask").props("role=document"):
        Text("h2", f"{offer.text}{': ' + words.short(peer) if peer else ''}")
        Text("p", offer.means)
        name = _field("Parameter", "name", 64) if "name" in offer.fields else None
        value = _field("Value", "value", 64) if "value" in offer.fields else None
        reason = _field("Reason, which everybody may read", "reason", MAX_REASON)
        token = _field("Operator's token", "token", 200, secret=True)
        said = Text("p", "", "sign bad").props("role=alert")
        with Element("div").classes("bar"):
            sure = Text("button", f"Yes: {offer.text.lower()}", "button go").props(
                "type=button data-testid=sure"
            )
            Text("button", "No", "button").props("type=button").on("click", dialog.close)

    async def act() -> None:
        if not actions.allowed(token.value.strip()):
            token.value = ""
            said.say(
                "✖ This is not the operator's token. It is in coordinator/operator.token of the data directory."
            )
            return
        sure.props("disabled")
        try:
            wish = Wish(offer.do, reason.value, peer, name.value.strip() if name else "",
                        value.value.strip() if value else "")  # fmt: skip
            done = await actions.act("operator", wish)
        except NodeError as error:
            said.say(f"✖ {error}")
            sure.props(remove="disabled")
            return
        finally:
            token.value = ""
        ui.notify(words.safe(done.outcome, 200), type="positive", close_button="Close", timeout=10_000)
        dialog.close()

    sure.on("click", act)
    dialog.on_value_change(lambda event: dialog.delete() if not event.value else None)
    dialog.open()


def _field(label: str, name: str, longest: int, secret: bool = False) -> ui.input:
    made = (
        ui.input(label, password=secret)
        .classes("ask-field")
        .props(f"maxlength={longest} outlined dense name={name}")
    )
    return made.props('autocomplete="off"')
