"""The reference package ``toploc`` 0.1.6, built from its source distribution beside the torch of this environment.

Its wheel does not import with a current torch; its source builds in half a minute with a C++ compiler. The environment
is kept in ``TOPLOC_REFERENCE_VENV`` (by default below the user's cache folder), so that it is built once.
"""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

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


def time_reference(widths: tuple[int, ...], *, pinned: bool) -> dict[str, float]:
    """Seconds per call of the reference: ``build_<H>``, ``verify_<H>`` and ``prefill``.

    ``pinned`` keeps the process on one core; its verification otherwise starts a thread per core.
    """
    order = json.dumps({"widths": widths, "pinned": pinned})
    # Not from the repository's root: there ``toploc`` is ours.
    done = subprocess.run(
        [str(reference_python()), str(TIMER), order],
        cwd=TIMER.parent,
        env={**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1" if pinned else ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        raise RuntimeError("the reference's timer failed")
    times: dict[str, float] = json.loads(done.stdout)
    return times
