"""``python -m tests.repository.rows``: which tests pin which row of docs/failure-modes.md.

Tests are collected, not run. The exit status is 1 when a closed row has no test, when a test names a row that
the page does not have, or when a test file cannot be collected.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "failure-modes.md"
_CELLS = (
    r"(?P<number>\d+)",
    r"(?P<severity>[SHCW](?:, [SHCW])*)",
    r"(?P<happened>.+)",
    r"(?P<shown>.+)",
    r"(?P<state>open|closed)",
)
_ROW = re.compile(r"^\| " + r" \| ".join(_CELLS) + r" \|$")


@dataclass(frozen=True)
class Row:
    """One incident of the page."""

    number: int
    severity: tuple[str, ...]
    happened: str
    shown: str
    closed: bool


def parse(text: str) -> tuple[Row, ...]:
    """Rows of the page, in its order.

    Raises:
        ValueError: A line begins like a row and is none, or a number appears twice.
    """
    rows: list[Row] = []
    for line in text.splitlines():
        if not re.match(r"\|\s*\d", line):
            continue
        match = _ROW.match(line)
        if match is None:
            raise ValueError(f"not a row of number, severity, two sentences and open or closed: {line[:60]}")
        severity = tuple(match["severity"].split(", "))
        closed = match["state"] == "closed"
        rows.append(Row(int(match["number"]), severity, match["happened"], match["shown"], closed))
    numbers = [row.number for row in rows]
    if len(set(numbers)) != len(numbers):
        raise ValueError("a row's number appears twice")
    return tuple(rows)


class Collector:
    """A pytest plugin that notes the ``failure_mode`` markers of what is collected."""

    def __init__(self) -> None:
        self.tests: dict[int, list[str]] = {}
        self.broken: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note every marker; a parametrised test counts once."""
        for item in items:
            name = item.nodeid.split("[", 1)[0]
            for marker in item.iter_markers("failure_mode"):
                for number in marker.args:
                    tests = self.tests.setdefault(number, [])
                    if name not in tests:
                        tests.append(name)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected."""
        if report.failed:
            self.broken.append(report.nodeid)


def complaints(rows: Iterable[Row], tests: Mapping[int, list[str]], broken: Iterable[str] = ()) -> list[str]:
    """What is wrong between the page and the tests, a sentence each."""
    rows = tuple(rows)
    known = {row.number for row in rows}
    said = [
        f"Row {row.number} is closed and no test pins it."
        for row in rows
        if row.closed and not tests.get(row.number)
    ]
    said += [
        f"{test} names row {number}, which the page does not have."
        for number in tests
        if number not in known
        for test in tests[number]
    ]
    said += [f"{name} cannot be collected." for name in broken]
    return said


def main() -> int:
    """Print rows and tests; see the module's own words for the exit status."""
    rows = parse(PAGE.read_text(encoding="utf-8"))
    collector = Collector()
    # The terminal plugin is off, and with it the options that are its own: only the table below is wanted.
    options = [
        "--collect-only",
        "-p",
        "no:terminal",
        "-o",
        "addopts=--import-mode=importlib --strict-markers",
    ]
    pytest.main([*options, str(ROOT / "tests")], plugins=[collector])
    console = Console(soft_wrap=True, highlight=False)
    for row in rows:
        tests = collector.tests.get(row.number, [])
        if row.closed or tests:
            console.print(f"[bold]{row.number:>3}[/]  {'closed' if row.closed else 'open  '}  {row.happened}")
            for test in tests:
                console.print(f"       {test}", markup=False)
    open_rows = [str(row.number) for row in rows if not row.closed and not collector.tests.get(row.number)]
    console.print(f"No test yet, and not closed: {', '.join(open_rows)}")
    wrong = complaints(rows, collector.tests, collector.broken)
    for sentence in wrong:
        console.print(f"[red]{sentence}[/]")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
