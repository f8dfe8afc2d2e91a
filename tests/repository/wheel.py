"""``python -m tests.repository.wheel FOLDER``: build the wheel there, refuse anything foreign in it."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("diloco", "node", "protocol", "rl", "shardcast", "toploc")
_SHIPPED = ("pyproject.toml", "README.md", "LICENSE", *PACKAGES)
_JUNK = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def build(into: Path) -> Path:
    """Build the wheel from a copy of the tree, so that no left-over of an earlier build gets in.

    Needs no network: the build back end is the installed one.

    Returns:
        The wheel's path in ``into``.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        copy.mkdir()
        for name in _SHIPPED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=_JUNK)
            elif source.exists():
                shutil.copy2(source, copy / name)
        made = Path(folder) / "made"
        command = [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(made),
            str(copy),
        ]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the wheel cannot be built:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        (wheel,) = made.glob("*.whl")
        into.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(wheel, into))


def contents(wheel: Path) -> tuple[str, ...]:
    """Names of all files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return tuple(archive.namelist())


def complaints(names: tuple[str, ...]) -> list[str]:
    """What is wrong with a wheel that holds these files, a sentence each."""
    said = []
    for name in names:
        top = name.split("/", 1)[0]
        if top not in PACKAGES and not top.endswith(".dist-info"):
            said.append(f"{name} is not of our packages.")
    held = {name.split("/", 1)[0] for name in names}
    said += [f"The package {package} is missing." for package in PACKAGES if package not in held]
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    said += [
        f"{module} is missing; its folder may lack an __init__.py." for module in sorted(modules - set(names))
    ]
    return said


def main(into: str) -> int:
    """Build, check, and say what came out."""
    wheel = build(Path(into))
    names = contents(wheel)
    wrong = complaints(names)
    for sentence in wrong:
        print(sentence)
    print(f"{wheel}: {len(names)} files, {wheel.stat().st_size / 1024:.0f} KiB")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "dist"))
