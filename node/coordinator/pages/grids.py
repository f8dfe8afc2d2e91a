"""Tables of many rows that sort, filter and export in the browser; only rows that changed are sent."""

from collections.abc import Iterable, Sequence
from typing import Any

from nicegui import ui
from nicegui.element import Element

from node.coordinator.pages.components import VALUE, Text

Row = dict[str, Any]
"""Cells by column; ``peer`` names the row."""

LINK = """params => { const a = document.createElement("a"); a.href = "/peers/" + encodeURIComponent(params.data.peer);
a.textContent = params.value; return a; }"""
UNITS = """params => params.value == null ? "—" : params.value < 1000 ? String(params.value) :
["", " k", " M", " G", " T"].reduce((text, unit, place) =>
params.value >= 1000 ** place ? (params.value / 1000 ** place).toPrecision(3) + unit : text, "")"""
PLAIN = 'params => params.value == null || params.value === "" ? "—" : String(params.value)'


def column(field: str, name: str, width: int = 110, text: bool = False, shape: str = PLAIN) -> dict[str, Any]:
    """A column; ``shape`` is one of the constants of this module, for it is run in the browser."""
    return {
        "field": field, "headerName": name, "width": width,
        "filter": "agTextColumnFilter" if text else "agNumberColumnFilter", ":valueFormatter": shape,
    }  # fmt: skip


def peer_column() -> dict[str, Any]:
    """The column with each peer's name, a link to its page."""
    return {**column("name", "Name", 190, text=True), ":cellRenderer": LINK}


class Grid:
    """A table with a field to search in it and a button to save it.

    Args:
        columns: As ``column`` makes them.
        rows: The rows at first.
        file: Name of the file that it is saved as.
    """

    def __init__(self, columns: Sequence[dict[str, Any]], rows: Sequence[Row], file: str) -> None:
        self._shown = {row["peer"]: row for row in rows}
        with Element("div").classes("bar"):
            search = Text("input", "", "field").props(
                'type=search placeholder="Search all columns" aria-label="Search all columns"'
            )
            save = Text("button", "Save as CSV", "button").props("type=button")
        self._grid = ui.aggrid(
            {
                "columnDefs": [dict(each) for each in columns],
                "rowData": list(rows),
                "defaultColDef": {"sortable": True, "resizable": True},
                ":getRowId": "params => params.data.peer",
                "suppressFieldDotNotation": True,
                "enableCellTextSelection": True,
                "ensureDomOrder": True,
            },
            auto_size_columns=False,
        ).classes("grid")
        save.on("click", lambda: self._grid.run_grid_method("exportDataAsCsv", {"fileName": file}))
        search.on("input", lambda event: self._search(str(event.args)[:80]), throttle=0.2, js_handler=VALUE)

    def _search(self, text: str) -> None:
        self._grid.run_grid_method("setGridOption", "quickFilterText", text)

    def show(self, rows: Sequence[Row]) -> None:
        """Other rows."""
        new, other, gone = differences(self._shown, rows)
        if new or other or gone:
            change = {"add": new, "update": other, "remove": gone}
            self._grid.run_grid_method("applyTransaction", change)


def differences(shown: dict[str, Row], rows: Iterable[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Rows that are new, other and gone; ``shown`` becomes what is shown then."""
    wanted = {row["peer"]: row for row in rows}
    new = [row for peer, row in wanted.items() if peer not in shown]
    other = [row for peer, row in wanted.items() if peer in shown and shown[peer] != row]
    gone = [{"peer": peer} for peer in shown if peer not in wanted]
    shown.clear()
    shown.update(wanted)
    return new, other, gone


def rounded(value: float | None) -> float | None:
    """Three digits of a number; None of what is none."""
    return float(f"{value:.3g}") if value is not None and value - value == 0 else None
