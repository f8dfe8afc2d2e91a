"""A new extension package: files that work as they are, to be changed."""

import re
from pathlib import Path

from node.extensions import system_schema
from protocol.errors import Code, NodeError
from protocol.messages.schema import area_of

_NAME = re.compile(r"(?P<area>[a-z][a-z0-9]*)-(?P<what>[a-z][a-z0-9]*(-[a-z0-9]+)*)")
_LONGEST = 56  # with `ask-` or `-news` it still is the name of a message

_FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "NAME"
version = "0.1.0"
description = "Adds AREA.WHAT to intellect-node."
requires-python = ">=3.11"
dependencies = ["intellect-node"]

[project.entry-points."intellect_node.messages"]
NAME = "MODULE:attach"

[tool.setuptools]
packages = ["MODULE"]

[tool.setuptools.package-data]
"*" = ["py.typed"]

[tool.pytest.ini_options]
addopts = "--import-mode=importlib"
""",
    "MODULE/__init__.py": '''\
"""What NAME adds to a node."""

from protocol.rpc import Endpoint

from MODULE.handlers import Reporter
from MODULE.messages import AskReport, News, Report

__all__ = ["AskReport", "News", "Report", "Reporter", "attach"]


def attach(endpoint: Endpoint) -> None:
    """Called by every node that has this package, once, when it starts."""
    reporter = Reporter()
    endpoint.handle(reporter.on_ask_report)
    endpoint.handle(reporter.on_news)
''',
    "MODULE/messages.py": '''\
"""The messages of NAME. `intellect-node messages describe AREA.WHAT` shows one."""

from protocol import Asks, field, message, request, topic


@message("AREA.WHAT", version=1, max_bytes="4 KiB", rate="1/s", audience="member")
class Report:
    """How a node is doing."""

    celsius: tuple[float, ...] = field(1, max_items=64)
    driver: str = field(2, default="", max_bytes=64)


@request("AREA.ask-WHAT", version=1, max_bytes="1 KiB", rate="10/s", timeout="5 s", replies=Report)
class AskReport(Asks[Report]):
    """Asks a node how it is doing."""


@topic("AREA.WHAT-news", version=1, max_bytes="1 KiB", rate="1/s", audience="member")
class News:
    """Something that every node is to know."""

    text: str = field(1, max_bytes=400)
''',
    "MODULE/handlers.py": '''\
"""What a node does when it is asked, and when there is news."""

from protocol.rpc import Context

from MODULE.messages import AskReport, News, Report


class Reporter:
    """Answers for one node."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def on_ask_report(self, message: AskReport, context: Context) -> Report:
        """Says how this node is doing."""
        return Report(celsius=(61.5, 60.0), driver="example")

    async def on_news(self, message: News, context: Context) -> None:
        """Notes what was published."""
        self.heard.append(message.text)
''',
    "MODULE/py.typed": "",
    "tests/test_report.py": '''\
"""Nodes in memory, the real handlers, no network."""

import asyncio

from protocol.testing import Swarm

from MODULE import AskReport, News, Report, Reporter


def test_a_node_says_how_it_is_doing() -> None:
    with Swarm(seed=1) as swarm:
        ana, ben = swarm.nodes(2)
        ben.handle(Reporter().on_ask_report)
        report = swarm.run(ana.request(ben.peer_id, AskReport()))
        assert report == Report(celsius=(61.5, 60.0), driver="example")


def test_news_reach_everybody() -> None:
    with Swarm(seed=1) as swarm:
        nodes = swarm.nodes(3)
        reporters = [Reporter() for _ in nodes]
        for node, reporter in zip(nodes, reporters, strict=True):
            node.handle(reporter.on_news)

        async def scene() -> None:
            await nodes[0].publish(News("hello"))
            await asyncio.sleep(5)  # of the swarm's own time, which costs nothing

        swarm.run(scene())
        assert [each.heard for each in reporters[1:]] == [["hello"], ["hello"]]
''',
    "README.md": """\
# NAME

Adds `AREA.WHAT` and what belongs to it to intellect-node.

    pip install -e .
    pytest
    intellect-node messages list

A node on which it is installed serves it: `MODULE/__init__.py` says what `attach` registers.

Before the first release, write down what the wire promises, and check it from then on:

    intellect-node messages export --module MODULE --schema schema
    intellect-node messages check --module MODULE --schema schema
""",
}


def scaffold(name: str, folder: Path) -> Path:
    """Makes the package.

    Args:
        name: Its name, two or more words as ``acme-report``: the area of its messages, and what they are about.
        folder: Where its folder is made.

    Returns:
        The package's folder.

    Raises:
        NodeError: ``E-CFG-006`` for another kind of name, an area of the system's own, or a folder that is there
            already; ``E-STO-002`` if it cannot be written.
    """
    words = _NAME.fullmatch(name)
    if words is None or len(name) > _LONGEST:
        raise NodeError(
            Code.CFG_USAGE,
            f"{name!r} is no name for a package of messages.",
            fix="Use two words or more in lower case with a dash between, your own first: acme-report.",
        )
    area, what = words["area"], words["what"]
    if area in {area_of(spec) for spec in system_schema()}:
        raise NodeError(
            Code.CFG_USAGE,
            f"The system's own messages begin with {area!r}.",
            fix="Begin the name with a word of your own: acme-report.",
        )
    target = folder / name
    if target.exists():
        raise NodeError(
            Code.CFG_USAGE, f"{target} is there already.", fix="Use another name, or another --dir."
        )
    module = name.replace("-", "_")
    try:
        for path, text in _FILES.items():
            file = target / path.replace("MODULE", module)
            file.parent.mkdir(parents=True, exist_ok=True)
            for word, value in {"NAME": name, "MODULE": module, "AREA": area, "WHAT": what}.items():
                text = text.replace(word, value)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NodeError(Code.STO_UNWRITABLE, f"{target} cannot be written: {error.strerror}.") from error
    return target
