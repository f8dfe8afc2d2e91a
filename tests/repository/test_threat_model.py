"""Every row of docs/threat-model.md names tests that exist, and so does the threat model of docs/shardcast.md."""

import re
from pathlib import Path

import pytest

from tests.repository.test_readme import names_in

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
COLUMNS = ["asset", "adversary", "attack", "control", "the test that proves it", "what is left"]


def tables() -> list[list[list[str]]]:
    """The page's tables, as rows of cells, heads included."""
    found: list[list[list[str]]] = []
    before = ""
    for line in PAGE.splitlines():
        if line.startswith("|"):
            if not before.startswith("|"):
                found.append([])
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        before = line
    return found


ROWS = [row for table in tables() for row in table[2:]]


def test_every_table_has_the_same_columns() -> None:
    assert len(tables()) >= 5
    assert [table[0] for table in tables()] == [COLUMNS] * len(tables())
    assert all(len(row) == len(COLUMNS) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2][:40])
def test_a_row_names_tests_that_exist(row: list[str]) -> None:
    assert all(row[:4]), "asset, adversary, attack and control are said"
    named = re.findall(r"`(tests/[^`]+)::(\w+)`", row[4])
    assert named, "a row names a test in backticks as file::name"
    for file, name in named:
        assert (ROOT / file).is_file(), f"{file} does not exist"
        assert name in names_in(ROOT / file), f"{file} has no {name}"


SHARDCAST = (ROOT / "docs" / "shardcast.md").read_text(encoding="utf-8").partition("## Threat model")[2]
ATTACKS = [line for line in SHARDCAST.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("line", ATTACKS, ids=lambda line: line[2:42])
def test_an_attack_on_a_broadcast_names_tests_that_exist(line: str) -> None:
    attack, control, tests, _ = (cell.strip() for cell in line.strip("|").split("|"))
    named = re.findall(r"`(tests/[^`]+)::(\w+)`", tests)
    assert attack and control and named
    for file, name in named:
        assert (ROOT / file).is_file() and name in names_in(ROOT / file), f"{file} has no {name}"
