"""Environments by name: the built-in ones and those of installed packages."""

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass

from protocol.errors import Code, NodeError
from rl.environments.interface import Config, Environment

GROUP = "intellect_node.environments"
"""A package's entry point in this group names a function `(config) -> Environment`."""

BUILT_IN = tuple(
    importlib.metadata.EntryPoint(name, f"rl.environments.{module}:make", GROUP)
    for name, module in (
        ("arithmetic", "arithmetic"),
        ("number-guessing", "number_guessing"),
        ("python-programs", "python_programs"),
        ("reasoning-gym", "reasoning_gym"),
        ("reverse-text", "reverse_text"),
        ("sifted", "sifted"),
        ("verifiers", "verifiers"),
    )
)
"""A package cannot take their names."""


@dataclass(frozen=True)
class Installed:
    """An installed environment.

    Attributes:
        name: Its entry point's name.
        package: The distribution that has it, with its version.
        problem: Why it cannot be used; None if it can.
    """

    name: str
    package: str
    problem: NodeError | None


def _points() -> dict[str, importlib.metadata.EntryPoint]:
    points = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: point.value, reverse=True)
    return {point.name: point for point in (*points, *BUILT_IN)}


def _factory(point: importlib.metadata.EntryPoint) -> Callable[[Config], Environment]:
    try:
        factory = point.load()
    except (Exception, SystemExit) as error:
        raise NodeError(
            Code.RL_ENVIRONMENT,
            f"The environment {point.name} cannot be imported: {type(error).__name__}: {error}",
        ) from error
    if not callable(factory):
        raise NodeError(Code.RL_ENVIRONMENT, f"The environment {point.name} is not a function of its config.")
    made: Callable[[Config], Environment] = factory
    return made


def installed() -> tuple[Installed, ...]:
    """All environments that are installed. One that cannot be imported is reported and harms no other."""
    found = []
    for name, point in sorted(_points().items()):
        package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "built in"
        problem = None
        try:
            _factory(point)
        except NodeError as error:
            problem = error
        found.append(Installed(name, package, problem))
    return tuple(found)


def load(name: str, config: Config) -> Environment:
    """Make an environment.

    Args:
        name: Its entry point's name.
        config: Its settings, from the run file's `[rl.environment]`.

    Raises:
        NodeError: RL_ENVIRONMENT when there is none of that name, or it cannot be imported or made so.
    """
    points = _points()
    if name not in points:
        raise NodeError(
            Code.RL_ENVIRONMENT,
            f"No environment is called {name[:100]!r}; installed are {', '.join(sorted(points)) or 'none'}.",
        )
    factory = _factory(points[name])
    try:
        return factory(config)
    except NodeError:
        raise
    except Exception as error:
        raise NodeError(
            Code.RL_ENVIRONMENT,
            f"The environment {name} refuses its settings: {type(error).__name__}: {error}",
        ) from error
