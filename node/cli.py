"""The command line. It reads arguments, prints, and calls; what takes time to import is imported inside a command."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from node.admin_cli import admin
from node.children import die_with_parent_if_asked
from node.ledger_cli import ledger
from node.lifecycle import RUNS, running
from node.messages_cli import messages
from node.shardcast_cli import shardcast
from protocol.errors import CATALOGUE, Code, NodeError

if TYPE_CHECKING:
    from node.coordinator.desk import DeskOptions
    from node.runfile import RunFile

GUIDE = """\
intellect-node trains language models together with other people's machines.

  See it work here       intellect-node demo
  Join a run             intellect-node run RUN.toml --join MULTIADDR
  Begin a run            intellect-node init RUN.toml
  See what a node does   intellect-node status
  Stop a node            intellect-node stop
  Check this machine     intellect-node doctor
  Read a run's ledger    intellect-node ledger show DIR
  Add a message          intellect-node messages new NAME
  Move a large file      intellect-node shardcast publish FILE
  Make rollouts          intellect-node run RUN.toml --join MULTIADDR --role rollout

A run file may be as short as this; docs/run.example.toml shows every key:

  [run]
  name = "my-run"
  rounds = 100

All commands: intellect-node --help
"""

app = typer.Typer(
    name="intellect-node",
    help="Train language models together with other people's machines.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunFilePath = Annotated[
    Path, typer.Argument(metavar="RUN.toml", help="The run file.", show_default=False, readable=False)
]
# The commands themselves say what is wrong with a path (readable=False), with a code of its own.
Dir = Annotated[
    Path | None,
    typer.Option(
        "--dir", metavar="DIR", help="The node's data directory; runs/NAME by default.", readable=False
    ),
]
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
Invite = Annotated[
    str,
    typer.Option(
        "--invite", metavar="TOKEN", envvar="INTELLECT_INVITATION", show_envvar=True, show_default=False,
        help="The token of an invitation.",
    ),
]  # fmt: skip
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 done, 1 failed, 2 wrong command line or run file."""
    die_with_parent_if_asked()
    try:
        status = app(
            args=None if argv is None else list(argv), prog_name="intellect-node", standalone_mode=False
        )
        return status if isinstance(status, int) else 0
    except NodeError as error:
        return _report(error)
    except KeyboardInterrupt:
        return 130
    except typer.Abort:
        return 1
    except Exception as error:
        words = getattr(error, "format_message", None)  # an argument that typer refused
        if words is None:
            raise
        return _report(NodeError(Code.CFG_USAGE, str(words())))


def _report(error: NodeError) -> int:
    """Print an error and return the exit status that it means."""
    problems = getattr(error, "problems", ())
    if problems:
        for problem in problems:
            print(f"{problem.code}: {problem.text(error.name)}", file=sys.stderr)  # type: ignore[attr-defined]
        fixes = dict.fromkeys(problem.fix for problem in problems)
    else:
        about = f" (peer {error.peer})" if error.peer and error.peer not in error.sentence else ""
        print(f"{error.code}: {error.sentence}{about}", file=sys.stderr)
        fixes = dict.fromkeys([error.fix])
    for fix in fixes:
        if fix:
            print(f"  Fix: {fix}", file=sys.stderr)
    return 2 if error.code.startswith("E-CFG-") else 1


def _print_version(wanted: bool) -> None:
    if wanted:
        from diloco.config import RunSection
        from node.machine import software_version

        print(f"intellect-node {software_version()}, protocol {RunSection().protocol}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _begin(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the versions.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(GUIDE, end="")


@app.command()
def init(
    path: RunFilePath,
    folder: Dir = None,
    relay: Relay = False,
    dashboard: Dashboard = "",
    database: Database = "",
    verbose: Verbose = False,
) -> int:
    """Begin a run: make its genesis and operator key, and start its first node."""
    from node.runfile import load

    runfile = load(path).as_relay(relay)
    folder = folder or RUNS / runfile.run.name
    site = _site(dashboard, database)

    def start() -> int:
        from node.daemon import init_node

        return int(init_node(runfile, path, folder, site))

    return _start(runfile, folder, start, verbose)


@app.command()
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
    site = _site(dashboard, database)
    os.environ.update({"INTELLECT_INVITATION": invite} if invite else {})

    def start() -> int:
        from node.daemon import run_node

        return int(run_node(runfile, path, folder, addresses, site))

    return _start(runfile, folder, start, verbose)


@app.command()
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
    os.environ.update({"INTELLECT_INVITATION": invite} if invite else {})
    runfile = RunFile()

    def start() -> int:
        from node.daemon import run_node

        return int(run_node(runfile, Path("run.toml"), folder, (address,)))

    return _start(runfile, folder, start, verbose)


@app.command()
def coordinator(
    path: Annotated[
        Path | None, typer.Argument(metavar="RUN.toml", help="The run file; none with --demo-data.")
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where the dashboard and API are served.")
    ] = "127.0.0.1:8080",
    database: Database = "",
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
    site = _site(listen, database, "--listen")
    assert site is not None

    def start() -> int:
        from node.coordinator.alone import run_coordinator

        return int(run_coordinator(runfile, path, folder, addresses, site))

    return _start(runfile, folder, start, verbose)


def _demo_data(listen: str, database: str) -> int:
    """Serve demo data until interrupted."""
    site = _site(listen, database, "--listen")
    assert site is not None
    from node.coordinator.demo_site import serve_demo

    return serve_demo(site.listen, site.database)


def _site(dashboard: str, database: str, option: str = "--dashboard") -> "DeskOptions | None":
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
    return DeskOptions(parse_listen(dashboard, option), database)


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
    with hold(folder):
        for warning in require(runfile, folder):
            print(f"{warning.code}: {warning.sentence} {warning.fix}", file=sys.stderr)
        budget = thread_budget(runfile.node.threads or share_of_cores(runfile.node.workers + 1))
        for name, value in budget.items():
            os.environ.setdefault(name, value)
        return start()


def _check_multiaddr(address: str) -> None:
    import re

    from node.runfile_problems import MULTIADDR_PATTERN

    if not re.fullmatch(MULTIADDR_PATTERN, address):
        raise NodeError(
            Code.CFG_USAGE,
            f"--join {address!r} is not a peer's address.",
            fix="Give one as `intellect-node status` prints it there: /ip4/203.0.113.7/tcp/4001/p2p/12D3KooW…",
        )


@app.command()
def status(folder: Dir = None, as_json: AsJson = False) -> int:
    """Say what a node is doing and why it waits. Without --dir: all nodes below runs/."""
    from dataclasses import asdict

    from node.status import ask_status
    from node.status_view import render

    answers = [(each, ask_status(each)) for each in running(folder)]
    if as_json:
        print(json.dumps([{"dir": str(each), **asdict(answer)} for each, answer in answers]))
    else:
        print("\n\n".join(f"{render(answer, time.time())}\n  dir      {each}" for each, answer in answers))
    return 0


@app.command()
def stop(
    folder: Dir = None,
    every: Annotated[bool, typer.Option("--all", help="Every node below runs/.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Without draining: the round's work is lost.")] = False,
    wait: Annotated[
        str, typer.Option("--wait", metavar="TIME", help="How long to wait for its end.")
    ] = "90 s",
) -> int:
    """Stop a node: it finishes its round, says goodbye and ends."""
    from node.lifecycle import holder
    from node.status import ask_stop
    from protocol.units import duration

    try:
        patience = duration(wait)
    except ValueError as error:
        raise NodeError(
            Code.CFG_USAGE, f"--wait: {error}.", fix='Write a time such as --wait "90 s".'
        ) from None
    folders = running(folder)
    if len(folders) > 1 and not every:
        raise NodeError(
            Code.CFG_USAGE,
            f"{len(folders)} nodes run: {', '.join(map(str, folders))}.",
            fix="Name one with --dir, or stop them all with --all.",
        )
    ended = True
    for each in folders:
        if holder(each) is not None:
            print(f"Stopping the node in {each} ...", file=sys.stderr)
        ended = ask_stop(each, now=now, wait=patience) and ended
    if not ended:
        print(
            f"It has not ended within {wait}. It goes on draining; `intellect-node stop --now` ends it.",
            file=sys.stderr,
        )
    return 0 if ended else 1


app.add_typer(admin, name="admin")
app.add_typer(messages, name="messages")
app.add_typer(ledger, name="ledger")
app.add_typer(shardcast, name="shardcast")


@app.command()
def export(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A node's data directory.", show_default=False, readable=False),
    ],
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="FOLDER", help="Where to write the model.", show_default=False, readable=False
        ),
    ],
) -> int:
    """Write a node's last committed model as a Hugging Face folder."""
    from node.exporting import export_node

    return int(export_node(folder, to))


@app.command()
def environments(as_json: AsJson = False) -> int:
    """List the environments of reinforcement learning that are installed here."""
    from rl.environments.registry import installed

    found = installed()
    if as_json:
        plain = [
            {"name": each.name, "package": each.package, "problem": each.problem and each.problem.sentence}
            for each in found
        ]
        print(json.dumps(plain))
    for each in () if as_json else found:
        print(f"{each.name:<24}  {each.package:<24}  {each.problem.sentence if each.problem else 'ok'}")
    return 1 if any(each.problem for each in found) else 0


@app.command()
def doctor(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN.toml]", help="The run file to check for.", show_default=False, readable=False
        ),
    ] = None,
    folder: Dir = None,
    as_json: AsJson = False,
) -> int:
    """Check whether this machine can run a node: memory, disk, ports, keys, clock, libraries."""
    from node.doctor import examine
    from node.runfile import RunFile, load

    runfile = load(path) if path is not None else RunFile()
    findings = examine(runfile, folder or RUNS / runfile.run.name)
    errors = sum(finding.level == "error" for finding in findings)
    if as_json:
        print(json.dumps([_plain(finding) for finding in findings]))
        return 1 if errors else 0
    marks = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}
    for finding in findings:
        print(f"{marks[finding.level]}  {finding.name:<9}  {finding.sentence}")
        if finding.code is not None:
            print(f"{'':20}{finding.code} {CATALOGUE[finding.code].title}. {finding.fix}")
    print("This machine can run the node." if not errors else f"{errors} of {len(findings)} checks failed.")
    return 1 if errors else 0


def _plain(record: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(record)


@app.command()
def demo(
    nodes: Annotated[
        int, typer.Option("--nodes", min=2, max=16, help="Nodes at the start; one more joins later.")
    ] = 4,
    rounds: Annotated[int, typer.Option("--rounds", min=4, max=1000, help="Rounds to train.")] = 10,
    inner_steps: Annotated[
        int, typer.Option("--inner-steps", min=1, max=1000, help="Steps of each round.")
    ] = 20,
    workers_per_node: Annotated[
        int, typer.Option("--workers-per-node", min=1, max=8, help="Workers of each node.")
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The run's seed.")] = 1,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where everything goes.", readable=False)
    ] = RUNS / "demo",
    as_json: Annotated[bool, typer.Option("--json", help="Print only the report.")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Train the synchronous baseline, too.")] = False,
    rl: Annotated[
        bool, typer.Option("--rl", help="Reinforcement learning instead: one of three workers cheats.")
    ] = False,
    steps: Annotated[int, typer.Option("--steps", min=1, max=1000, help="With --rl: steps to train.")] = 48,
) -> int:
    """Train a small model with a swarm on this machine: one node joins, one is killed, one leaves."""
    if rl:
        from node.demo_rl.command import run_rl_demo

        folder = RUNS / "demo-rl" if folder == RUNS / "demo" else folder
        return int(run_rl_demo(steps=steps, seed=seed, folder=folder, as_json=as_json))
    from node.demo import run_demo

    return int(
        run_demo(
            nodes=nodes,
            rounds=rounds,
            inner_steps=inner_steps,
            workers_per_node=workers_per_node,
            seed=seed,
            folder=folder,
            as_json=as_json,
            compare=compare,
        )
    )
