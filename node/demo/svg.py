"""Charts as inline SVG, drawn with classes that the page's style sheet colours. Pure; every text is escaped."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 920
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 14, 34
_CHARACTER = 6.6  # width of one in the charts' small print


@dataclass(frozen=True)
class Line:
    """One line of a line chart.

    Attributes:
        label: Shown in the legend and beside each point.
        style: Class of the style sheet.
        points: x and y.
    """

    label: str
    style: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Bar:
    """A piece of a row: from `begin` to `end` on the x axis."""

    style: str
    begin: float
    end: float
    label: str


@dataclass(frozen=True)
class Mark:
    """A vertical line with words at its top.

    Attributes:
        x: Where.
        label: The words.
        row: Index of the row that it is about, which gets a dot; None for none.
    """

    x: float
    label: str
    row: int | None = None


def ticks(low: float, high: float, wanted: int = 6) -> tuple[float, ...]:
    """Round numbers between two bounds, about as many as wanted."""
    if not high > low:
        return (low,)
    rough = (high - low) / max(1, wanted - 1)
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return tuple(each * step for each in range(first, math.floor(high / step + 1e-9) + 1))


def line_chart(lines: Sequence[Line], *, x_label: str, y_label: str, height: int = 300) -> str:
    """Lines over a common x axis, with a dot at each point that says its value."""
    points = [point for line in lines for point in line.points]
    if not points:
        return '<p class="none">Nothing to draw.</p>'
    x_low, x_high = _bounds([x for x, _ in points])
    y_low, y_high = _bounds([y for _, y in points], margin=0.06)
    bottom = height - _BOTTOM
    xs = [(x, _scale(x, x_low, x_high, _LEFT, WIDTH - _RIGHT)) for x in ticks(x_low, x_high, 11)]
    ys = [(y, _scale(y, y_low, y_high, bottom, _TOP)) for y in ticks(y_low, y_high)]
    parts = [_grid(xs, ys, bottom, x_label, y_label)]
    for line in lines:
        placed = [
            (_scale(x, x_low, x_high, _LEFT, WIDTH - _RIGHT), _scale(y, y_low, y_high, bottom, _TOP), x, y)
            for x, y in line.points
        ]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py, _, _ in placed)
        parts.append(f'<polyline class="line {escape(line.style)}" points="{path}"/>')
        parts += [
            f'<circle class="dot {escape(line.style)}" cx="{px:.1f}" cy="{py:.1f}" r="3.5">'
            f"<title>{escape(line.label)}, {escape(x_label)} {_plain(x)}: {y:.3f}</title></circle>"
            for px, py, x, y in placed
        ]
    legend = _legend({line.label: f"line {line.style}" for line in lines})
    return legend + _svg(height, "".join(parts), f"{y_label} over {x_label}")


def row_chart(
    rows: Mapping[str, Sequence[Bar]],
    *,
    legend: Mapping[str, str],
    x_label: str,
    marks: Sequence[Mark] = (),
    guides: Sequence[tuple[float, str]] = (),
    high: float | None = None,
) -> str:
    """Rows of bars over a common x axis that begins at 0.

    Args:
        rows: Bars by the row's name.
        legend: Style by what it means.
        x_label: What the x axis shows.
        marks: Happenings.
        guides: Thin vertical lines with short words at the bottom, such as ends of rounds.
        high: End of the x axis; the last bar's by default.
    """
    ends = [bar.end for bars in rows.values() for bar in bars]
    if not ends:
        return '<p class="none">Nothing to draw.</p>'
    high = max(ends) if high is None else high
    lanes, lane_of = _lanes(marks, high)
    top = _TOP + 15 * lanes
    thick, gap = 20, 10
    bottom = top + len(rows) * (thick + gap)
    height = bottom + _BOTTOM + (14 if guides else 0)
    left = _LEFT + 12

    def place(x: float) -> float:
        return _scale(x, 0.0, high, left, WIDTH - _RIGHT)

    parts = []
    for x in ticks(0.0, high, 9):
        parts.append(f'<line class="grid" x1="{place(x):.1f}" x2="{place(x):.1f}" y1="{top}" y2="{bottom}"/>')
        parts.append(_text(place(x), bottom + 16, _plain(x), "middle"))
    parts.append(_text(WIDTH - _RIGHT, height - 4, x_label, "end"))
    for x, words in guides:
        parts.append(
            f'<line class="guide" x1="{place(x):.1f}" x2="{place(x):.1f}" y1="{top}" y2="{bottom + 3}"/>'
        )
        parts.append(_text(place(x), bottom + 31, words, "middle", "guide"))
    for index, (name, bars) in enumerate(rows.items()):
        y = top + index * (thick + gap) + gap / 2
        parts.append(_text(left - 8, y + thick / 2 + 4, name, "end"))
        for bar in bars:
            width = max(0.6, place(bar.end) - place(bar.begin))
            parts.append(
                f'<rect class="{escape(bar.style)}" x="{place(bar.begin):.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{thick}"><title>{escape(name)}: {escape(bar.label)}</title></rect>'
            )
    for mark, lane in zip(marks, lane_of, strict=True):
        x, y = place(mark.x), _TOP + 15 * lane
        anchor = "end" if x + len(mark.label) * _CHARACTER > WIDTH - _RIGHT else "start"
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 8:.1f}" y2="{bottom}"/>')
        parts.append(_text(x + (4 if anchor == "start" else -4), y, mark.label, anchor, "mark"))
        if mark.row is not None:
            cy = top + mark.row * (thick + gap) + gap / 2 + thick / 2
            parts.append(f'<circle class="mark" cx="{x:.1f}" cy="{cy:.1f}" r="5"/>')
    return _legend(legend) + _svg(height, "".join(parts), x_label)


def _lanes(marks: Sequence[Mark], high: float) -> tuple[int, list[int]]:
    """How many rows of words the marks need so that none lies on another, and the row of each."""
    ends: list[float] = []
    lane_of: list[int] = []
    for mark in marks:
        width = len(mark.label) * _CHARACTER + 12
        x = _scale(mark.x, 0.0, high, _LEFT + 12, WIDTH - _RIGHT)
        begin = x - width if x + width > WIDTH - _RIGHT else x
        lane = next((index for index, end in enumerate(ends) if end <= begin), len(ends))
        if lane == len(ends):
            ends.append(0.0)
        ends[lane] = begin + width
        lane_of.append(lane)
    return len(ends), lane_of


def _grid(
    xs: Sequence[tuple[float, float]],
    ys: Sequence[tuple[float, float]],
    bottom: float,
    x_label: str,
    y_label: str,
) -> str:
    parts = []
    for value, y in ys:
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 8, y + 4, _plain(value), "end"))
    parts += [_text(x, bottom + 16, _plain(value), "middle") for value, x in xs]
    parts.append(_text(WIDTH - _RIGHT, bottom + 31, x_label, "end"))
    middle = (bottom + _TOP) / 2
    parts.append(
        f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    )
    return "".join(parts)


def _legend(entries: Mapping[str, str]) -> str:
    items = "".join(
        f'<li><svg width="14" height="12" aria-hidden="true">{_swatch(style)}</svg>{escape(label)}</li>'
        for label, style in entries.items()
    )
    return f'<ul class="legend">{items}</ul>'


def _swatch(style: str) -> str:
    if style.startswith("line "):
        return f'<polyline class="{escape(style)}" points="0,6 14,6"/>'
    return f'<rect class="{escape(style)}" width="12" height="12" rx="2"/>'


def _svg(height: float, inside: str, title: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"{inside}</svg>"
    )


def _text(x: float, y: float, words: str, anchor: str, style: str = "") -> str:
    kind = f' class="{escape(style)}"' if style else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _scale(value: float, low: float, high: float, begin: float, end: float) -> float:
    return begin if high == low else begin + (value - low) / (high - low) * (end - begin)


def _bounds(values: Sequence[float], margin: float = 0.0) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * margin or (0.0 if not margin else 0.5)
    return low - room, high + room


def _plain(value: float) -> str:
    return f"{value:,.6g}"
