"""README's promises: its status table names real tests, the links of all pages lead somewhere."""

import ast
import re
from pathlib import Path

import pytest

from tests.repository.documents import PAGES, ROOT, page

README = page("README.md")


def status_rows(text: str) -> list[tuple[str, str]]:
    """What and shown-by of each row of the table under "## Status"."""
    section = text.split("\n## Status\n", 1)[1].split("\n## ", 1)[0]
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in section.splitlines()
        if line.startswith("|")
    ]
    return [(row[0], row[1]) for row in rows[2:]]


def names_in(path: Path) -> set[str]:
    """Names of a file's test functions, with their class where they have one."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}::{one.name}"
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return {name for name in names if name.split("::")[-1].startswith("test")}


@pytest.mark.parametrize(("what", "shown_by"), status_rows(README), ids=lambda text: text[:40])
def test_each_row_of_the_status_table_names_tests_or_says_not_run(what: str, shown_by: str) -> None:
    assert what
    if shown_by == "*not run*":
        return
    named = re.findall(r"`([^`]+)`", shown_by)
    assert named, "a row names a test in backticks or says *not run*"
    for test in named:
        if test.startswith("make "):
            assert re.search(rf"^{test.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
            continue
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file(), f"{file} does not exist"
        assert not name or name in names_in(ROOT / file), f"{file} has no {name}"


def test_the_status_table_says_what_a_gpu_has_not_shown() -> None:
    assert any("GPU" in what for what, _ in status_rows(README))


def heading_anchors(text: str) -> set[str]:
    """The anchors of a page: of its headings, as code hosts make them, and those written out."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        name, _, fragment = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (
            fragment and fragment not in heading_anchors(file.read_text(encoding="utf-8"))
        ):
            broken.append(target)
    assert broken == []
