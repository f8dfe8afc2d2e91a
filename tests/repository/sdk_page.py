"""``python -m tests.repository.sdk_page``: hold the programs of docs/sdk.md to a strict type checker.

What an extension's author writes has to be clean there, and the answer to a request has to have its class.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "sdk.md"
QUESTION = """
async def ask() -> None:
    reveal_type(await ana.endpoint.request(ben.peer_id, AskReport()))
"""


def blocks(language: str) -> list[str]:
    """The page's blocks of a language."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def complaints() -> str:
    """What the type checker has against the programs; empty if nothing."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text("\n\n".join([*blocks("python"), QUESTION]), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(program)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        return done.stdout + done.stderr
    return "" if 'Revealed type is "program.Report"' in done.stdout else done.stdout


if __name__ == "__main__":
    found = complaints()
    print(found or "The programs of docs/sdk.md are clean under strict types.")
    sys.exit(1 if found else 0)
