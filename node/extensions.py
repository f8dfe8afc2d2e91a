"""All messages that this installation knows: the system's own, and those of installed extensions.

An extension is an installed package with an entry point in the group ``intellect_node.messages``; it names a function
``attach(endpoint)`` that registers handlers. Importing it declares its messages.
"""

import asyncio
import importlib
import importlib.metadata
import site
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from diloco.member.setting import Emit
from protocol.errors import Code, NodeError
from protocol.messages import REGISTRY, Spec, spec_of
from protocol.rpc import Endpoint

GROUP = "intellect_node.messages"

SYSTEM = (
    "diloco.member.admission",
    "diloco.member.messages",
    "diloco.member.news",
    "diloco.reduce.messages",
    "diloco.rounds.delta",
    "diloco.rounds.records",
    "diloco.rounds.statements",
    "diloco.rounds.values",
    "node.messages",
    "node.latency",
    "node.reporting",
    "protocol.delegation",
    "protocol.directory.records",
    "protocol.gossip.messages",
    "rl.messages",
    "shardcast.messages",
)
"""The modules that declare the system's own messages."""

_LOOK_AGAIN = timedelta(seconds=10)

Attach = Callable[[Endpoint], object]


@dataclass(frozen=True)
class Extension:
    """An installed extension.

    Attributes:
        name: Its entry point's name.
        package: The distribution that has it, with its version.
        attach: Registers its handlers.
        messages: Names of the messages that it declared.
    """

    name: str
    package: str
    attach: Attach
    messages: tuple[str, ...]


def system_messages() -> tuple[Spec, ...]:
    """The contracts of the system's own messages, in order of their names."""
    for module in SYSTEM:
        importlib.import_module(module)
    return tuple(spec for spec in REGISTRY.all() if spec.cls.__module__ in SYSTEM)


def system_schema() -> tuple[Spec, ...]:
    """The contracts that the committed schema holds: all messages, and the envelope's header."""
    from protocol.envelope import Header

    return (*system_messages(), spec_of(Header))


def messages_of(modules: Iterable[str]) -> tuple[Spec, ...]:
    """The contracts that modules or packages declare, the submodules they import included.

    Raises:
        NodeError: ``E-CFG-008`` if one cannot be imported or declares nothing.
    """
    system_messages()
    found: dict[str, Spec] = {}
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            why = error.sentence if isinstance(error, NodeError) else f"{type(error).__name__}: {error}"
            raise NodeError(Code.CFG_EXTENSION, f"{module} cannot be imported: {why}") from error
        here = [
            spec
            for spec in REGISTRY.all()
            if spec.cls.__module__ == module or spec.cls.__module__.startswith(module + ".")
        ]
        if not here:
            raise NodeError(Code.CFG_EXTENSION, f"{module} declares no message.")
        found |= {spec.name: spec for spec in here}
    return tuple(found[name] for name in sorted(found))


def load_extensions(skip: Iterable[str] = ()) -> tuple[tuple[Extension, ...], tuple[NodeError, ...]]:
    """Loads the installed extensions. One that cannot be loaded harms no other.

    Args:
        skip: Names of those that are loaded already.

    Returns:
        The extensions, and one ``E-CFG-008`` for each that failed.
    """
    system_messages()  # so that an extension cannot take a name of the system's
    known, failures = [], []
    skip = set(skip)
    for point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: point.name):
        if point.name in skip:
            continue
        skip.add(point.name)
        package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
        before = {spec.name for spec in REGISTRY.all()}
        try:
            attach = point.load()
            if not callable(attach):
                raise TypeError(f"{point.value} is not a function attach(endpoint)")
        except Exception as error:
            why = error.sentence if isinstance(error, NodeError) else f"{type(error).__name__}: {error}"
            failures.append(
                NodeError(
                    Code.CFG_EXTENSION, f"The extension {point.name} of {package} cannot be loaded: {why}"
                )
            )
            continue
        root = point.module.partition(".")[0]
        declared = tuple(
            spec.name
            for spec in REGISTRY.all()
            if spec.name not in before or spec.cls.__module__.partition(".")[0] == root
        )
        known.append(Extension(point.name, package, attach, declared))
    return tuple(known), tuple(failures)


class Extensions:
    """The extensions that a running node serves; new ones are found when they are installed."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._seen: set[str] = set()
        self.served: list[Extension] = []

    def find(self) -> tuple[tuple[Extension, ...], tuple[NodeError, ...]]:
        """Loads extensions that were not there the last time; those that failed are not tried again. In any thread."""
        _see_new_packages()
        found = load_extensions(self._seen)
        self._seen |= {point.name for point in importlib.metadata.entry_points(group=GROUP)}
        return found

    def attach(self, extension: Extension) -> None:
        """Registers an extension's handlers. In the endpoint's event loop.

        Raises:
            NodeError: ``E-CFG-008`` if it cannot.
        """
        try:
            extension.attach(self._endpoint)
        except Exception as error:
            why = error.sentence if isinstance(error, NodeError) else f"{type(error).__name__}: {error}"
            raise NodeError(
                Code.CFG_EXTENSION, f"The extension {extension.name} cannot be attached: {why}"
            ) from error
        self.served.append(extension)


async def serve_extensions(endpoint: Endpoint, emit: Emit) -> None:
    """Serves the installed extensions and those that are installed later; until cancelled.

    Whatever is wrong with one is an event and harms nobody else.
    """
    extensions = Extensions(endpoint)
    while True:
        found, failures = await asyncio.to_thread(extensions.find)
        failed = list(failures)
        for extension in found:
            try:
                extensions.attach(extension)
            except NodeError as error:
                failed.append(error)
                continue
            emit(
                "extension.served",
                name=extension.name,
                package=extension.package,
                messages=list(extension.messages),
            )
        for failure in failed:
            emit("extension.failed", code=str(failure.code), reason=failure.sentence)
        await asyncio.sleep(_LOOK_AGAIN.total_seconds())


def _see_new_packages() -> None:
    """Lets this process import what was installed since it started, in editable mode too."""
    importlib.invalidate_caches()
    for folder in list(sys.path):
        new = {path.name for path in Path(folder or ".").glob("__editable__*.pth")} - _PTH.get(folder, set())
        if new:
            _PTH.setdefault(folder, set()).update(new)
            for name in sorted(new):
                site.addpackage(folder, name, None)


_PTH: dict[str, set[str]] = {}
