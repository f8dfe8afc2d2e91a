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
class Field:
    """What a dialog asks for beside reason and token.

    Attributes:
        name: Of the order's field in the API.
        label: For people.
        times: By how much a number is multiplied; 0 for a text.
        given: What stands there at first.
    """

    name: str
    label: str
    times: int = 0
    given: str = ""


ROUND = Field("round", "From this round on; empty for at once", 1)
NAME, VALUE, NUMBER = Field("name", "Parameter"), Field("value", "Value"), Field("value", "Its number")
DAYS = Field("seconds", "Days that it lasts; empty for good", 86_400)
INVITATION = (
    Field("uses", "How many peers it lets in", 1, "1"),
    Field("seconds", "Days that it is good", 86_400, "7"),
    Field("note", "For whom"),
)


@dataclass(frozen=True)
class Offer:
    """An action as a button.

    Attributes:
        do: Its name, as in ``intellect-node admin``; empty where ``path`` says what is done.
        text: What stands on the button.
        means: What it does, in a sentence.
        fields: What more it needs.
        value: Of the order's ``value``, where it is known before.
        path: Where in the API the order goes.
        method: And how.
    """

    do: str
    text: str
    means: str
    fields: tuple[Field, ...] = ()
    value: str = ""
    path: str = "actions"
    method: str = "POST"


def button(site: Site, offer: Offer, peer: str = "") -> None:
    """A button that opens the dialog of an action; none where this coordinator has no key to act with."""
    if site.actions is not None:
        Text("button", offer.text, "button").props("type=button").on("click", lambda: _ask(offer, peer))


def _ask(offer: Offer, peer: str) -> None:
    with ui.dialog() as dialog, Element("div").classes("card ask").props("role=document") as form:
        form.props(f'data-action="{offer.do}" data-peer="{peer}" data-value="{offer.value}"')
        form.props(f'data-path="{offer.path}" data-method="{offer.method}"')
        Text("h2", f"{offer.text}{': ' + words.short(peer) if peer else ''}")
        Text("p", offer.means)
        fields = [_field(each) for each in offer.fields]
        fields.append(_field(Field("reason", "Reason, which everybody may read")))
        fields[0].props("data-autofocus")
        _field(Field("token", "Operator's token"))
        said = Text("p", "", "sign bad").props("role=alert")
        Text("output", "", "mono")
        with Element("div").classes("bar"):
            sure = Text("button", f"Yes: {offer.text.lower()}", "button go").props(
                "type=button data-testid=sure"
            )
            Text("button", "Close", "button").props("type=button").on("click", dialog.close)

    def answered(event: GenericEventArguments) -> None:
        done, sentence = event.args.get("done") is True, words.safe(str(event.args.get("sentence", "")), 300)
        said.say("" if done else f"✖ {sentence}")
        if done:
            ui.notify(
                f"✔ {sentence}",
                position="top",
                timeout=10_000,
                actions=[{"label": "Close", "color": "white"}],
            )
        if done and event.args.get("shows") is not True:
            dialog.close()

    sure.on("click", answered, js_handler=SEND)
    dialog.on_value_change(lambda event: dialog.delete() if not event.value else None)
    dialog.open()


def _field(field: Field) -> Text:
    """A labelled field whose content stays in the browser."""
    kind = "number" if field.times else "password" if field.name == "token" else "text"
    longest = MAX_REASON if field.name in ("reason", "note", "token") else 64
    with Element("label").classes("ask-field"):
        Text("span", field.label)
        made = Text("input", "", "field")
    made.props(
        f'type={kind} name={field.name} maxlength={longest} autocomplete="off" data-times={field.times}'
    )
    return made.props(f'placeholder="{field.given}" min=0' if field.given else "")
