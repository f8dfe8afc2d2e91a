"""``python -m tests.repository.troubleshooting``: write the code section of docs/troubleshooting.md.

The section comes from ``protocol.errors.CATALOGUE``; what stands around it is written by hand.
"""

from pathlib import Path

from protocol.errors import CATALOGUE, Code

PAGE = Path(__file__).parent.parent.parent / "docs" / "troubleshooting.md"
BEGIN = "<!-- codes: begin, written by `make docs` -->"
END = "<!-- codes: end -->"
AREAS = {
    "CFG": "Configuration",
    "ID": "Identity and keys",
    "NET": "Network",
    "WIRE": "Messages on the wire",
    "DIR": "Directory",
    "RND": "Rounds and admission",
    "TRN": "Training",
    "STO": "Storage",
    "SHC": "Transfer of large objects",
    "RL": "Reinforcement learning",
    "SYS": "The machine",
}


def area(code: Code) -> str:
    """The part of a code between its dashes: NET of E-NET-003."""
    return code.value.split("-")[1]


def anchor(code: Code) -> str:
    """The name that a link to this code ends in."""
    return code.value.lower()


def render() -> str:
    """The section's text: one heading per area, one anchor, title and fix per code."""
    lines: list[str] = []
    seen = ""
    for code, entry in sorted(
        CATALOGUE.items(), key=lambda item: (list(AREAS).index(area(item[0])), item[0].value)
    ):
        if area(code) != seen:
            seen = area(code)
            lines += [f"## {AREAS[seen]}", ""]
        again = " Trying again may succeed." if entry.retriable else ""
        lines += [
            f'<a id="{anchor(code)}"></a>',
            f"### {code.value}: {entry.title}",
            "",
            f"{entry.fix}{again}",
            "",
        ]
    return "\n".join(lines)


def replace(page: str, section: str) -> str:
    """The page with another section between the two markers.

    Raises:
        ValueError: A marker is missing.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError("docs/troubleshooting.md lacks one of its two markers")
    return f"{head}{begin}\n\n{section}\n{end}{tail}"


if __name__ == "__main__":
    PAGE.write_text(replace(PAGE.read_text(encoding="utf-8"), render()), encoding="utf-8")
