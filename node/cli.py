"""The command line. It reads arguments, prints, and calls; what takes time to import is imported inside a command."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from node.admin_cli import admin
from node.ask_cli import doctor, environments, export, status, stop
from node.children import die_with_parent_if_asked
from node.demo_cli import demo
from node.ledger_cli import ledger
from node.messages_cli import messages
from node.shardcast_cli import shardcast
from node.sift_cli import sift
from node.start_cli import coordinator, init, join, run
from protocol.errors import Code, NodeError

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
  Sift a run's tasks     intellect-node sift RUN.toml

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


for _command in (init, run, join, coordinator, status, stop, export, environments, sift, doctor, demo):
    app.command()(_command)
app.add_typer(admin, name="admin")
app.add_typer(messages, name="messages")
app.add_typer(ledger, name="ledger")
app.add_typer(shardcast, name="shardcast")
