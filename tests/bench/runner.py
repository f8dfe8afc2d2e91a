"""Runs benchmarks, writes one JSON file each, prints one table.

A benchmark is a file of this folder, named after its area (``codec_int8.py``), with a function
``run() -> Measurement``. Each runs in a process of its own, so that what one imports, or which threads it
starts, does not change another's numbers.
"""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.machine import describe_machine
from tests.bench.measurement import Measurement
from tests.bench.targets import Target, judge, load_targets

AREAS = ("codec", "protocol", "rounds", "toploc", "shardcast", "rl", "coordinator", "allreduce")
FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
RESULTS = ROOT / "runs" / "bench"


def benchmarks(folder: Path = FOLDER) -> tuple[str, ...]:
    """Names of the benchmarks: the files whose name begins with an area."""
    return tuple(sorted(path.stem for path in folder.glob("*.py") if _area(path.stem) is not None))


def _area(name: str) -> str | None:
    return next((area for area in AREAS if name == area or name.startswith(area + "_")), None)


def select(names: Sequence[str], only: str) -> tuple[str, ...]:
    """Those that ``only`` means: all for an empty word, one for its name, all of one area for the area's.

    Raises:
        ValueError: It means none.
    """
    if not only:
        return tuple(names)
    chosen = tuple(name for name in names if only in (name, _area(name)))
    if not chosen:
        raise ValueError(f"no benchmark is called {only!r}; there are {', '.join(names) or 'none'}")
    return chosen


def measure(name: str, folder: Path = FOLDER) -> Measurement:
    """Run one benchmark in this process."""
    spec = importlib.util.spec_from_file_location(f"tests.bench.{name}", folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    measurement = module.run()
    if not isinstance(measurement, Measurement):
        raise TypeError(f"{name}.run() must return a Measurement, not {type(measurement).__name__}")
    return measurement


def result(name: str, measurement: Measurement, targets: Sequence[Target], seconds: float) -> dict[str, Any]:
    """What the JSON file of one benchmark holds."""
    return {
        "schema": 1,
        "name": name,
        "figures": {key: float(value) for key, value in measurement.figures.items()},
        "peers": {key: float(value) for key, value in measurement.peers.items()},
        "ratios": {key: float(value) for key, value in measurement.ratios.items()},
        "targets": [verdict.as_dict() for verdict in judge(measurement, tuple(targets))],
        "command": f"make bench ONLY={name}",
        "machine": describe_machine(),
        "seconds": round(seconds, 3),
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def write_one(name: str, folder: Path = FOLDER, results: Path = RESULTS) -> Path:
    """Run one benchmark here and write its file; what a child process of :func:`main` does."""
    start = time.perf_counter()
    measurement = measure(name, folder)
    targets = load_targets(folder / "targets.toml").get(name, ())
    text = json.dumps(
        result(name, measurement, targets, time.perf_counter() - start), indent=2, allow_nan=False
    )
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{name}.json"
    path.write_text(text + "\n", encoding="utf-8")
    return path


def table(results: Sequence[dict[str, Any]]) -> Table:
    """All numbers of all results, with the targets beside those that have one."""
    shown = Table(title="Benchmarks", title_justify="left")
    shown.add_column("benchmark")
    shown.add_column("number")
    shown.add_column("measured", justify="right")
    shown.add_column("target", justify="right")
    shown.add_column("met")
    for one in results:
        verdicts = {verdict["name"]: verdict for verdict in one["targets"]}
        first = True
        for kind in ("figures", "peers", "ratios"):
            for key, value in one[kind].items():
                verdict = verdicts.get(key)
                target = str(Target(key, verdict["min"], verdict["max"])) if verdict else ""
                met = "" if not verdict else "[green]yes[/]" if verdict["met"] else "[bold red]no[/]"
                shown.add_row(one["name"] if first else "", key, f"{value:.4g}", target, met)
                first = False
        shown.add_section()
    return shown


def main(arguments: Sequence[str], folder: Path = FOLDER, results: Path = RESULTS) -> int:
    """``python -m tests.bench [NAME or AREA]``; 0 if all ran and met their targets."""
    console = Console()
    if arguments[:1] == ["--one"]:
        write_one(arguments[1], folder, results)
        return 0
    try:
        names = select(benchmarks(folder), arguments[0] if arguments else "")
        unknown = sorted(set(load_targets(folder / "targets.toml")) - set(benchmarks(folder)))
        if unknown:
            raise ValueError(f"targets.toml has targets for {', '.join(unknown)}, which is no benchmark")
    except ValueError as error:
        console.print(f"[red]{error}[/]", soft_wrap=True)
        return 2
    done, failed = [], []
    for name in names:
        console.print(f"{name} …")
        path = results / f"{name}.json"
        path.unlink(missing_ok=True)
        child = subprocess.run([sys.executable, "-m", "tests.bench", "--one", name], cwd=ROOT, check=False)
        if child.returncode == 0 and path.exists():
            done.append(json.loads(path.read_text(encoding="utf-8")))
        else:
            failed.append(name)
    console.print(table(done))
    missed = [
        f"{one['name']}.{verdict['name']}" for one in done for verdict in one["targets"] if not verdict["met"]
    ]
    if failed:
        console.print(f"[red]Did not run: {', '.join(failed)}[/]")
    if missed:
        console.print(f"[red]Targets missed: {', '.join(missed)}[/]")
    return 1 if failed or missed else 0
