"""The parts that pages are made of. All text goes in as text, never as markup."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from nicegui import ui
from nicegui.element import Element

from node.coordinator.pages.words import safe, short
from node.coordinator.verdict import Level, Line
from node.coordinator.view import Member, View

SIGNS: dict[Level, str] = {"good": "✔ Good", "attention": "▲ Attention", "bad": "✖ Bad"}
"""Every level as sign and word, so that colour is never the only difference."""


VALUE = "(event) => emit(event.target.value)"
"""What the browser sends of an input field: its value."""


class Text(Element):
    """An HTML element with a text, which is sent again only when it changes."""

    def __init__(self, tag: str, text: str = "", classes: str = "") -> None:
        super().__init__(tag)
        self._text = text
        if classes:
            self.classes(classes)

    def say(self, text: str) -> Self:
        """Another text."""
        if text != self._text:
            self._text = text
            self.update()
        return self

    def put(self, name: str, value: str) -> Self:
        """Another attribute."""
        if self._props.get(name) != value:
            self._props[name] = value
            self.update()
        return self


class Age(Text):
    """*As of 3 s ago*, counted by the browser."""

    def __init__(self, at: float = 0.0) -> None:
        super().__init__("div", "", "age")
        self.at(at)

    def at(self, at: float) -> None:
        """Another time, Unix seconds; 0 while nothing is known."""
        self.put("data-at", f"{at:.1f}")


class Figure(Element):
    """A card with one number: what it is, its value, a remark, its age."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__("section")
        self.classes("card")
        with self:
            Text("div", what, "what")
            self._value = Text("div", "—", "value")
            self._remark = Text("div", hint, "soft")
            self._age = Age()

    def show(self, value: str, at: float, remark: str | None = None) -> None:
        """Another value with its age."""
        self._value.say(value)
        self._age.at(at)
        if remark is not None:
            self._remark.say(remark)


class Levelled(Text):
    """An element that looks like a level."""

    _level: Level | None = None

    def level(self, level: Level) -> None:
        """Another level."""
        if level != self._level:
            self.classes(remove=self._level or "", add=level)
            self._level = level


def verdict_line() -> Callable[[Line], None]:
    """The verdict; what is returned shows another one."""
    with Levelled("section", "", "card verdict").props('aria-label="Verdict" role=status') as box:
        sign, sentence = Text("span", "", "sign"), Text("span", "", "sentence")

    def show(line: Line) -> None:
        box.level(line.level)
        sign.say(SIGNS[line.level])
        sentence.say(safe(line.sentence, 400))

    return show


def section(title: str, classes: str = "card") -> Element:
    """A card with a heading."""
    box = Element("section").classes(classes)
    with box:
        Text("h2", title)
    return box


def link(text: str, to: str, classes: str = "") -> Text:
    """A link to a page of the dashboard."""
    return Text("a", text, classes).put("href", to)


def name_of(view: View, peer: str) -> str:
    """What a peer is called, for people, with the end of its id."""
    member = view.members.get(peer)
    called = safe(member.who.name, 40) if member is not None and member.who.name else ""
    return f"{called} ({short(peer)})" if called else short(safe(peer))


def peer_link(view: View, peer: str) -> Text:
    """A link to a peer's page."""
    return link(name_of(view, peer), f"/peers/{peer}" if peer.isalnum() else "/peers", "peer")


def when(at: float) -> Text:
    """*3 s ago*, counted by the browser."""
    return Text("span").put("data-since", f"{at:.1f}")


Cell = str | Callable[[], object]
"""A text, or what makes the cell's content."""


class Rows(Element):
    """A plain table, made anew when its rows change.

    Args:
        columns: Its headings.
        empty: What stands there while there is no row.
        label: What it holds, for who cannot see it.
    """

    def __init__(self, columns: Sequence[str], empty: str, label: str) -> None:
        super().__init__("div")
        self.classes("scroll").props("tabindex=0 role=region").put_label(label)
        self._columns, self._empty = columns, empty
        self._last: object = None

    def put_label(self, label: str) -> None:
        """Its name."""
        self._props["aria-label"] = label

    def show(self, key: object, rows: Callable[[], Iterable[Sequence[Cell]]]) -> None:
        """Other rows, unless ``key`` is what it was."""
        if key == self._last:
            return
        self._last = key
        self.clear()
        found = list(rows())
        with self:
            if not found:
                Text("p", self._empty, "soft")
                return
            with Element("table").classes("plain"):
                with Element("thead"), Element("tr"):
                    for column in self._columns:
                        Text("th", column).put("scope", "col")
                with Element("tbody"):
                    for row in found:
                        with Element("tr"):
                            for cell in row:
                                if isinstance(cell, str):
                                    Text("td", cell, "long" if len(cell) > 40 else "")
                                else:
                                    with Element("td"):
                                        cell()


Points = list[tuple[float, float | None]]
"""Round and value; None is a gap."""

COLOURS = ("#3b82c4", "#d9822b", "#2f9e6b", "#a86bd1", "#c2504f", "#8a8f98")
"""Of the lines of charts: at least 3 to 1 on both backgrounds; each line is also named and drawn in its own way."""
FAINT = {"color": "#808080", "opacity": 0.3}
"""Of the lines behind a chart."""

_AXIS = """value => { const size = Math.abs(value);
const place = size < 10000 ? 0 : Math.min(4, Math.floor(Math.log10(size) / 3));
return place === 0 ? String(Number(value.toPrecision(6))) :
Number((value / 1000 ** place).toPrecision(3)) + ["", " k", " M", " G", " T"][place]; }"""
_LOW, _HIGH = (
    f"v => v.{end} {sign} Math.max(0.05 * (v.max - v.min), 0.02 * Math.abs(v.{end}))"
    for end, sign in (("min", "-"), ("max", "+"))
)
"""Ends of a vertical axis: so far apart that its numbers differ where the line is all but level."""
_STROKES = ("solid", "dashed", "dotted")


def chart(label: str, lines: Sequence[tuple[str, Points]]) -> ui.echart:
    """A chart of lines over rounds. A point whose value is None is a gap.

    Args:
        label: What it shows, for who cannot see it.
        lines: Name and points of each.
    """
    made = ui.echart(_chart_options(lines), renderer="svg").classes("chart")
    made.props["role"], made.props["aria-label"] = "img", label
    return made


def set_lines(made: ui.echart, lines: Sequence[tuple[str, Points]]) -> None:
    """Other points."""
    series = made.options["series"]
    for place, (_, points) in enumerate(lines):
        series[place]["data"] = [list(point) for point in points]
    made.update()


def _chart_options(lines: Sequence[tuple[str, Points]]) -> dict[str, Any]:
    return {
        "animation": False,
        "aria": {"enabled": False},
        "grid": {"left": 8, "right": 16, "top": 32, "bottom": 8, "containLabel": True},
        "legend": {"show": len(lines) > 1, "top": 0, "left": 0},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {"type": "value", "name": "", "min": "dataMin", "max": "dataMax", "splitLine": {"show": False}},
        "yAxis": {"type": "value", "scale": True, ":min": _LOW, ":max": _HIGH,
                  "axisLabel": {"hideOverlap": True, ":formatter": _AXIS, "showMinLabel": False, "showMaxLabel": False},
                  "splitLine": {"lineStyle": FAINT}},
        "series": [
            {
                "name": name, "type": "line", "showSymbol": False, "connectNulls": False,
                "data": [list(point) for point in points],
                "lineStyle": {"width": 2, "type": _STROKES[place % 3], "color": COLOURS[place % len(COLOURS)]},
                "itemStyle": {"color": COLOURS[place % len(COLOURS)]},
            }
            for place, (name, points) in enumerate(lines)
        ],
    }  # fmt: skip


def doing_of(member: Member) -> str:
    """What a member does, in words."""
    if member.doing.trouble:
        return safe(f"▲ {member.doing.trouble}")
    return safe(member.doing.sentence or member.doing.phase or "nothing heard yet")
