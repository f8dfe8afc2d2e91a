"""Commands that start a node: init, run, join, coordinator."""

import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node.cli_options import Dir, RunFilePath, Verbose
from node.lifecycle import RUNS
from protocol.errors import Code, NodeError

if TYPE_CHECKING:
    from node.coordinator.desk import DeskOptions
    from node.runfile import RunFile

INVITATION = "INTELLECT_INVITATION"
"""Environment variable with the token of an invitation: an argument could be read by every user of the machine."""

Relay = Annotated[
    bool,
    typer.Option(
        "--relay", help="Carry connections of peers behind routers; others have to reach this node."
    ),
]
Dashboard = Annotated[
    str,
    typer.Option(
        "--dashboard",
        metavar="HOST:PORT",
        help="Serve the run's dashboard and API there.",
        show_default=False,
    ),
]
Database = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="URL",
        help="PostgreSQL for the dashboard; else a SQLite file.",
        show_default=False,
    ),
]
Private = Annotated[
    bool, typer.Option("--private", help="Nobody reads the dashboard without the operator's token.")
]
Invite = Annotated[
    str,
    typer.Option(
        "--invite", metavar="TOKEN", envvar=INVITATION, show_envvar=True, show_default=False,
        help="The token of an invitation.",
    ),
]  # fmt: skip


def init(
    path: RunFilePath,
    folder: Dir = None,
    relay: Relay = False,
    dashboard: Dashboard = "",
    database: Database = "",
    private: Private = False,
    verbose: Verbose = False,
) -> int:
    """Begin a run: make its genesis and operator key, and start its first node."""
    from node.runfile import load

    runfile = load(path).as_relay(relay)
    folder = folder or RUNS / runfile.run.name
    site = _site(dashboard, database, private)

    def start() -> int:
        from node.daemon import init_node

        return int(init_node(runfile, path, folder, site))

    return _start(runfile, folder, start, verbose)


def run(
    path: RunFilePath,
    join: Annotated[
        list[str] | None,
        typer.Option(
            "--join", metavar="MULTIADDR", help="Address of any node of the run; may be given several times."
        ),
    ] = None,
    folder: Dir = None,
    role: Annotated[
        str,
        typer.Option(
            "--role", metavar="ROLE", help="What the node does: trainer, rollout or validator; as node.roles."
        ),
    ] = "",
    relay: Relay = False,
    dashboard: Dashboard = "",
    database: Database = "",
    private: Private = False,
    invite: Invite = "",
    verbose: Verbose = False,
) -> int:
    """Start a node: join a run, or go on where its data directory stopped."""
    from node.runfile import load

    runfile = load(path).as_relay(relay).with_role(role)
    for address in join or ():
        _check_multiaddr(address)
    addresses = tuple(join or runfile.network.join)
    folder = folder or RUNS / runfile.run.name
    site = _site(dashboard, database, private)

    def start() -> int:
        from node.daemon import run_node

        return int(run_node(runfile, path, folder, addresses, site, invite))

    return _start(runfile, folder, start, verbose)


def join(
    address: Annotated[
        str,
        typer.Argument(metavar="MULTIADDR", help="Address of any node of the run.", show_default=False),
    ],
    invite: Invite = "",
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="The node's data directory.", readable=False)
    ] = RUNS / "joined",
    verbose: Verbose = False,
) -> int:
    """Join a run without a run file: with this machine's defaults, and what the run says of itself."""
    from node.runfile import RunFile

    _check_multiaddr(address)
    runfile = RunFile()

    def start() -> int:
        from node.daemon import run_node

        return int(run_node(runfile, Path("run.toml"), folder, (address,), None, invite))

    return _start(runfile, folder, start, verbose)


def coordinator(
    path: Annotated[
        Path | None, typer.Argument(metavar="RUN.toml", help="The run file; none with --demo-data.")
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where the dashboard and API are served.")
    ] = "127.0.0.1:8080",
    database: Database = "",
    private: Private = False,
    join: Annotated[
        list[str] | None,
        typer.Option(
            "--join", metavar="MULTIADDR", help="Follow a run that is there, instead of making one."
        ),
    ] = None,
    demo_data: Annotated[
        bool, typer.Option("--demo-data", help="Show a made-up run of 256 members instead, and nothing else.")
    ] = False,
    folder: Dir = None,
    verbose: Verbose = False,
) -> int:
    """Make or follow a run without training: admit, order, serve dashboard and API."""
    from node.runfile import load

    if demo_data:
        return _demo_data(listen, database)
    if path is None:
        raise NodeError(
            Code.CFG_USAGE, "No run file is named.", fix="Name one, or say --demo-data to see a made-up run."
        )  # fmt: skip
    runfile = load(path)
    for address in join or ():
        _check_multiaddr(address)
    addresses = tuple(join or runfile.network.join)
    folder = folder or RUNS / f"{runfile.run.name}-coordinator"
    site = _site(listen, database, private, "--listen")
    assert site is not None

    def start() -> int:
        from node.coordinator.alone import run_coordinator

        return int(run_coordinator(runfile, path, folder, addresses, site))

    return _start(runfile, folder, start, verbose)


def _demo_data(listen: str, database: str) -> int:
    """Serve demo data until interrupted."""
    site = _site(listen, database, False, "--listen")
    assert site is not None
    from node.coordinator.demo_site import serve_demo

    return serve_demo(site.listen, site.database)


def _site(dashboard: str, database: str, private: bool, option: str = "--dashboard") -> "DeskOptions | None":
    """What the options say of a dashboard.

    Raises:
        NodeError: ``CFG_USAGE``, also where what it needs is not installed.
    """
    if not dashboard:
        return None
    try:
        from node.coordinator.desk import DeskOptions, parse_listen
    except ImportError as error:
        raise NodeError(
            Code.CFG_USAGE, f"The dashboard needs {error.name}, which is not installed.",
            fix="Install it: pip install 'intellect-node[coordinator]'",
        ) from None  # fmt: skip
    return DeskOptions(parse_listen(dashboard, option), database, public=not private)


def _start(runfile: "RunFile", folder: Path, start: Callable[[], int], verbose: bool) -> int:
    """Hold the data directory, check the machine, bound this process's threads, then start.

    The bound has to be set before the numerical libraries are imported, which `start` does.
    """
    from node.children import share_of_cores, thread_budget
    from node.doctor import require
    from node.lifecycle import hold

    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    os.environ.pop(INVITATION, None)  # it has been read, and is nothing for this node's children
    with hold(folder):
        for warning in require(runfile, folder):
            print(f"{warning.code}: {warning.sentence} {warning.fix}", file=sys.stderr)
        budget = thread_budget(runfile.node.threads or share_of_cores(runfile.node.workers + 1))
        for name, value in budget.items():
            os.environ.setdefault(name, value)
        return start()


def _check_multiaddr(address: str) -> None:
    from node.runfile_problems import MULTIADDR_PATTERN

    if not re.fullmatch(MULTIADDR_PATTERN, address):
        raise NodeError(
            Code.CFG_USAGE,
            f"--join {address!r} is not a peer's address.",
            fix="Give one as `intellect-node status` prints it there: /ip4/203.0.113.7/tcp/4001/p2p/12D3KooW…",
        )
