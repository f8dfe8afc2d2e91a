"""On which line of a TOML file each key stands; the parser of the standard library does not say."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any


def key_lines(text: str) -> dict[str, int]:
    """First line, counted from 1, of every dotted key and table of `text`, which must be valid TOML.

    The text is cut into statements by the parser itself: lines are added until it accepts them under the table they
    stand in. Keys inside a value of several lines get the line on which the statement begins.
    """
    found: dict[str, int] = {}
    header = ""
    statement: list[str] = []
    first = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not statement:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            first = number
        statement.append(line)
        try:
            content = tomllib.loads(header + "\n".join(statement) + "\n")
        except tomllib.TOMLDecodeError:
            if len(statement) > 1 or not line.lstrip().startswith("["):
                continue  # a value that goes on
            content = tomllib.loads(line + "\n")  # a table's header
        if line.lstrip().startswith("[") and len(statement) == 1:
            header = line + "\n"
            content = tomllib.loads(header)
        for key in _keys(content):
            found.setdefault(key, first)
        statement = []
    return found


def _keys(content: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in content.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from _keys(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    yield from _keys(item, f"{prefix}{name}.")
