"""The dialog in which an operator orders something: the token, why, and once more whether it is meant.

The order goes from the browser to the API, as any client's does: the token travels in a header of that one request, and
never over the page's own connection. dashboard.js reads the fields and sends it.
"""

from dataclasses import dataclass

from nicegui import ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from node.coordinator.pages import words
from node.coordinator.pages.components import Text
from node.coordinator.pages.site import Site
from node.roles.wish import MAX_REASON

SEND = "(event) => sendOrder(event.target.closest('.ask')).then((answer) => emit(answer))"
"""Run in the browser: the order is sent, and what became of it is told to the page's server, without the token."""


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
        Text("button", offer.text, "button").props("type=button").on("click", lambda: _ask(offer, peer))


def _ask(offer: Offer, peer: str) -> None:
    with ui.dialog() as dialog, Element("div").classes("card ask").props("role=document") as form:
        form.props(f'data-action="{offer.do}" data-peer="{peer}"')
        Text("h2", f"{offer.text}{': ' + words.short(peer) if peer else ''}")
        Text("p", offer.means)
        fields = [_field(each.capitalize(), each, 64) for each in offer.fields]
        fields.append(_field("Reason, which everybody may read", "reason", MAX_REASON))
        fields[0].props("data-autofocus")
        _field("Operator's token", "token", 200, secret=True)
        said = Text("p", "", "sign bad").props("role=alert")
        with Element("div").classes("bar"):
            sure = Text("button", f"Yes: {offer.text.lower()}", "button go").props(
                "type=button data-testid=sure"
            )
            Text("button", "No", "button").props("type=button").on("click", dialog.close)

    def answered(event: GenericEventArguments) -> None:
        done, sentence = event.args.get("done") is True, words.safe(str(event.args.get("sentence", "")), 300)
        if not done:
            said.say(f"✖ {sentence}")
            return
        ui.notify(sentence, type="positive", close_button="Close", timeout=10_000)
        dialog.close()

    sure.on("click", answered, js_handler=SEND)
    dialog.on_value_change(lambda event: dialog.delete() if not event.value else None)
    dialog.open()


def _field(label: str, name: str, longest: int, secret: bool = False) -> Text:
    """A labelled field whose content stays in the browser."""
    with Element("label").classes("ask-field"):
        Text("span", label)
        kind = "password" if secret else "text"
        made = Text("input", "", "field")
    made.props(f'type={kind} name={name} maxlength={longest} autocomplete="off"')
    return made
