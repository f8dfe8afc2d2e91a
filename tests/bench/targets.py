"""Targets: what ``targets.toml`` asks of a benchmark's numbers."""

import math
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.measurement import Measurement

TARGETS_FILE = Path(__file__).with_name("targets.toml")


@dataclass(frozen=True)
class Target:
    """One number's bounds; at least one of the two is given."""

    name: str
    min: float | None = None
    max: float | None = None

    def met_by(self, value: float) -> bool:
        """Whether the value lies within the bounds; one that is not a number never does."""
        above = self.min is None or value >= self.min
        below = self.max is None or value <= self.max
        return above and below and not math.isnan(value)

    def __str__(self) -> str:
        parts = [f"≥ {self.min:g}"] if self.min is not None else []
        parts += [f"≤ {self.max:g}"] if self.max is not None else []
        return " and ".join(parts)


@dataclass(frozen=True)
class Verdict:
    """A target beside what was measured."""

    name: str
    value: float
    min: float | None
    max: float | None
    met: bool

    as_dict = asdict


def load_targets(path: Path = TARGETS_FILE) -> dict[str, tuple[Target, ...]]:
    """Targets by benchmark.

    Raises:
        ValueError: A target has no bound, or a key that is neither ``min`` nor ``max``.
    """
    targets = {}
    for benchmark, rows in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for name, bounds in rows.items():
            if not isinstance(bounds, dict) or not bounds or set(bounds) - {"min", "max"}:
                raise ValueError(f"{path.name}: [{benchmark}] {name} must be a table with min, max or both")
        targets[benchmark] = tuple(Target(name, **bounds) for name, bounds in rows.items())
    return targets


def judge(measurement: Measurement, targets: tuple[Target, ...]) -> tuple[Verdict, ...]:
    """Each target with the value that was measured for it.

    Raises:
        ValueError: A target names a number that the benchmark does not report.
    """
    numbers = {**measurement.figures, **measurement.peers, **measurement.ratios}
    missing = [target.name for target in targets if target.name not in numbers]
    if missing:
        raise ValueError(
            f"targets.toml names {', '.join(missing)}; the benchmark reports {', '.join(numbers)}"
        )
    return tuple(
        Verdict(
            target.name, numbers[target.name], target.min, target.max, target.met_by(numbers[target.name])
        )
        for target in targets
    )
