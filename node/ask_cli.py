"""Commands about nodes and this machine: status, stop, doctor, export, environments."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from node.cli_options import AsJson, Dir
from node.lifecycle import RUNS, running
from protocol.errors import CATALOGUE, Code, NodeError


def status(folder: Dir = None, as_json: AsJson = False) -> int:
    """Say what a node is doing and why it waits. Without --dir: all nodes below runs/."""
    from node.status import ask_status
    from node.status_view import render

    answers = [(each, ask_status(each)) for each in running(folder)]
    if as_json:
        print(json.dumps([{"dir": str(each), **asdict(answer)} for each, answer in answers]))
    else:
        print("\n\n".join(f"{render(answer, time.time())}\n  dir      {each}" for each, answer in answers))
    return 0


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
        print(json.dumps([asdict(finding) for finding in findings]))
        return 1 if errors else 0
    marks = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}
    for finding in findings:
        print(f"{marks[finding.level]}  {finding.name:<9}  {finding.sentence}")
        if finding.code is not None:
            print(f"{'':20}{finding.code} {CATALOGUE[finding.code].title}. {finding.fix}")
    print("This machine can run the node." if not errors else f"{errors} of {len(findings)} checks failed.")
    return 1 if errors else 0
