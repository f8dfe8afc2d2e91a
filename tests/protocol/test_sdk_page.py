"""docs/sdk.md runs: its programs, one after the other, print what the page says."""

import subprocess
import sys

from tests.repository.sdk_page import ROOT, blocks


def test_the_first_program_is_whole_by_itself() -> None:
    assert run(blocks("python")[0]) == blocks("text")[0]


def test_the_programs_print_what_the_page_says() -> None:
    assert len(blocks("python")) == len(blocks("text"))
    assert run("\n\n".join(blocks("python"))) == "".join(blocks("text"))


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
