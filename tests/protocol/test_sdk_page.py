"""docs/sdk.md runs: its programs, one after the other, print what the page says, and satisfy a strict type checker."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "sdk.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


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


def test_the_programs_satisfy_a_strict_type_checker(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    asked = (
        "\n\nasync def ask() -> None:\n    reveal_type(await ana.endpoint.request(ben.peer_id, AskReport()))\n"
    )
    program.write_text("\n\n".join(blocks("python")) + asked, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert 'Revealed type is "program.Report"' in done.stdout
