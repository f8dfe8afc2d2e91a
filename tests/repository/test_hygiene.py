"""The repository stands alone: it names no machine's paths and no registry's host."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import FIRST

ROOT = Path(__file__).parent.parent.parent
# Written in pieces, so that this file does not name what it forbids.
FORBIDDEN = {
    "a path of one machine": re.compile(
        "(?<![\\w./-])/"
        + "(?:"
        + "|".join(("work", "root", "home/[a-z]", "Users/[a-z]", "opt/pypi", "opt/wheels"))
        + r")(?=[/\s\"'`,;:)]|$)"
    ),
    "a registry's host": re.compile(
        "|".join(
            re.escape(host)
            for host in (
                "pypi" + ".org",
                "pythonhosted" + ".org",
                "npmjs" + ".org",
                "download.pytorch" + ".org",
                "docker" + ".io",
                "ghcr" + ".io",
                "quay" + ".io",
                "nvcr" + ".io",
                "huggingface" + ".co",
                "deb.debian" + ".org",
            )
        )
    ),
    "the folder beside the repository": re.compile(r"\.\./" + "shared"),
}


def committed() -> list[Path]:
    """Text files of the repository: those that git knows or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file()]


def findings(text: str) -> list[str]:
    return [
        f"{what}: {match[0].strip()}"
        for what, pattern in FORBIDDEN.items()
        for match in pattern.finditer(text)
    ]


def test_no_file_names_a_machine_path_or_a_registry() -> None:
    found = []
    for path in committed():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            found += [f"{path.relative_to(ROOT)}:{number}: {finding}" for finding in findings(line)]
    assert found == []


def test_the_patterns_find_what_they_should_and_nothing_else() -> None:
    assert (
        findings("cd /" + "work/main && make")
        and findings('"/' + 'root/.cache"')
        and findings("https://pypi" + ".org/simple")
    )
    assert findings("see .." + "/shared/notes.md")
    assert findings("a/work/b, homework/, ./work, runs/demo") == []


def test_no_file_is_large() -> None:
    large = [
        f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes"
        for path in committed()
        if path.stat().st_size > 1 << 20
    ]
    assert large == []


def test_files_that_are_to_be_run_first_exist() -> None:
    assert [name for name in FIRST if not (ROOT / "tests" / name).is_file()] == []
