"""What the documents show: their code blocks, the commands that they name, the pages themselves."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    """A page's text by its path in the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language ("" for none)."""
    return [body for name, body in _BLOCK.findall(text) if name == language]


def commands(text: str, program: str) -> Iterator[list[str]]:
    """Arguments of each command line of a program: a line of a block, with what it goes on in, or a piece in backticks.

    A piece with "…" in it is an abbreviation and no command.
    """
    whole = [block.replace("\\\n", " ") for block in blocks(text, "")]
    lines = [line.split("  #")[0] for block in whole for line in block.splitlines()]
    pieces = re.findall(r"`([^`\n]+)`", _BLOCK.sub("", text))
    for line in (*lines, *pieces):
        if re.match(rf"{program}( |$)", line) and "…" not in line:
            yield shlex.split(line)[1:]


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one of its level or a higher one."""
    level = heading.split(" ")[0]
    rest = text.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[tuple[str, ...]]:
    """Cells of the tables in a text, without their heads."""
    found = []
    for line in text.splitlines():
        if line.startswith("|"):
            found.append(tuple(cell.strip() for cell in line.strip().strip("|").split("|")))
    heads = {index - 1 for index, row in enumerate(found) if all(re.fullmatch(r":?-+:?", c) for c in row)}
    rules = {index + 1 for index in heads}
    return [row for index, row in enumerate(found) if index not in heads | rules]
