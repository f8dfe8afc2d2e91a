"""The reference package ``toploc`` 0.1.6, built from its source distribution beside the torch of this environment.

Its wheel does not import with a current torch; its source builds in half a minute with a C++ compiler. The environment
is kept in ``TOPLOC_REFERENCE_VENV`` (by default below the user's cache folder), so that it is built once.
"""

import json
import os
import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import Self

PACKAGE = "toploc==0.1.6"
TIMER = Path(__file__).with_name("toploc_timer.py")


def reference_python() -> Path:
    """The interpreter that has the reference, made on first use.

    Raises:
        RuntimeError: it could not be built; the text has the builder's last words.
    """
    default = Path.home() / ".cache" / "intellect-node" / "toploc-reference"
    folder = Path(os.environ.get("TOPLOC_REFERENCE_VENV", default))
    python = folder / "bin" / "python"
    if not (folder / ".built").exists():
        venv.EnvBuilder(with_pip=True, clear=True).create(folder)
        (site,) = (folder / "lib").glob("python*/site-packages")
        # Torch and all else come from this environment; only the reference itself is installed there.
        (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
        _pip(python, "ninja", "wheel", "setuptools")
        _pip(python, "--no-deps", "--no-build-isolation", "--no-binary", "toploc", PACKAGE)
        (folder / ".built").touch()
    return python


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    environment = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the reference could not be built: {done.stderr[-2000:]}")


class Reference:
    """A process that has the reference and times it when asked, so that ours and it can be timed in turn.

    ``pinned`` keeps it on one core; its verification otherwise starts a thread per core.
    """

    def __init__(self, *, pinned: bool) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        # Not from the repository's root: there ``toploc`` is ours.
        self._process = subprocess.Popen(
            [str(reference_python()), str(TIMER), *(["pinned"] if pinned else [])],
            cwd=TIMER.parent,
            env={**environment, "PYTHONPATH": "", **({"OMP_NUM_THREADS": "1"} if pinned else {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, what: str, hidden: int, budget: float) -> float:
        """Median seconds of one ``build``, ``verify`` or ``prefill`` at a width, timed for ``budget`` seconds.

        Raises:
            RuntimeError: the process ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, hidden, budget]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the reference's timer failed")
        return float(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
