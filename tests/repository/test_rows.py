"""The page of failure modes can be read by a machine, and `make rows` notices what is missing."""

import pytest

from tests.repository.rows import PAGE, Row, complaints, parse

CLOSED = Row(1, ("S",), "it broke", "it holds", True)
OPEN = Row(2, ("H",), "it hung", "it goes on", False)


def test_the_page_parses_and_has_every_kind_of_severity() -> None:
    rows = parse(PAGE.read_text(encoding="utf-8"))
    assert {letter for row in rows for letter in row.severity} == {"S", "H", "C", "W"}
    assert any(row.closed for row in rows)


def test_a_closed_row_without_a_test_is_a_complaint() -> None:
    assert complaints([CLOSED, OPEN], {}) == ["Row 1 is closed and no test pins it."]
    assert complaints([CLOSED, OPEN], {1: ["tests/a.py::test_a"]}) == []


def test_a_marker_for_a_row_that_does_not_exist_is_a_complaint() -> None:
    assert complaints([OPEN], {9: ["tests/a.py::test_a"]}) == [
        "tests/a.py::test_a names row 9, which the page does not have."
    ]


def test_a_file_that_cannot_be_collected_is_a_complaint() -> None:
    assert complaints([], {}, ["tests/a.py"]) == ["tests/a.py cannot be collected."]


def test_a_row_with_an_unknown_state_is_refused() -> None:
    with pytest.raises(ValueError, match="not a row"):
        parse("| 1 | S | it broke | it holds | done |")
    with pytest.raises(ValueError, match="twice"):
        parse("| 1 | S | it broke | it holds | open |\n| 1 | S | it broke | it holds | open |")
