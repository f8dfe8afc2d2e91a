"""The program of docs/testing.md does what the page says."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"


def test_the_program_of_the_page_prints_what_the_page_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = re.search(r"It prints (.*)\.", text)
    assert said is not None
    assert done.stdout.split("\n")[:-1] == re.findall(r"`([^`]+)`", said[1])
