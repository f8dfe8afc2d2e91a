"""``python -m tests.repository.sdk_page``: hold what an extension's author writes to two strict type checkers.

The programs of docs/sdk.md have to be clean under mypy and pyright, and a request's answer has to have its class; a
package that ``intellect-node messages new`` has made, with its test, has to be clean under pyright.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from node.scaffold import scaffold

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
    """What the type checkers have against the programs; empty if nothing."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        program = folder / "program.py"
        program.write_text("\n\n".join([*blocks("python"), QUESTION]), encoding="utf-8")
        strict = ["--strict", "--follow-imports=silent"]
        complaint = _run("mypy", *strict, str(program), revealed='Revealed type is "program.Report"')
        scaffold("acme-report", folder)
        settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
        checker = ["--pythonpath", sys.executable, "--project", place]
        return complaint or _run("basedpyright", *checker, revealed='is "Report"')


def _run(checker: str, *words: str, revealed: str) -> str:
    command = [sys.executable, "-m", checker, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0 and revealed in done.stdout:
        return ""
    return done.stdout + done.stderr


if __name__ == "__main__":
    found = complaints()
    print(found or "The programs of docs/sdk.md and a new extension package are clean under strict types.")
    sys.exit(1 if found else 0)
