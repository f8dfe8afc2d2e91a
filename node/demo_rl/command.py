"""The way through the demo of reinforcement learning: folder, processes, verdict, report."""

import shutil
import sys
from pathlib import Path

from rich.console import Console

from node.demo.command import ending_as_by_keyboard
from node.demo.folder import hold
from node.demo_rl.conductor import Conductor
from node.demo_rl.facts import Facts
from node.demo_rl.plan import NODES, RELAY, RlOptions
from node.demo_rl.report import make_report, write_report
from node.demo_rl.verdict import judge
from node.demo_rl.view import View, closing
from node.eventlog import EventLog
from node.machine import measure
from protocol.errors import Code, NodeError

_JOURNAL = "demo-rl.jsonl"
_OURS = (
    *NODES,
    RELAY,
    "logs",
    "policies",
    "run.toml",
    "worker.toml",
    "warm.safetensors",
    "report.json",
    "report.html",
)


def run_rl_demo(*, steps: int, seed: int, folder: Path, as_json: bool) -> int:
    """Run the demo, print what came out, and write the report.

    Call it in the main thread: the nodes die with the thread that started them.

    Args:
        steps: GRPO steps.
        seed: Of the run.
        folder: Where everything goes; a former demo in it is replaced.
        as_json: Print the report and nothing else.

    Returns:
        0 when all that the demo promises happened, else 1.

    Raises:
        NodeError: What keeps it from starting: the folder.
        KeyboardInterrupt: Ctrl-C; by then all its processes have ended.
    """
    facts = Facts(RlOptions(steps, seed))
    console = Console()
    with hold(folder), ending_as_by_keyboard():
        _clear(folder)
        machine = measure(folder)
        view = View(facts, console, quiet=as_json)
        journal = EventLog(folder / _JOURNAL)
        journal.emit("demo.start", options=facts.options.plain())
        conductor = Conductor(folder, facts, view, journal)
        view.start()
        try:
            conductor.run()
            journal.emit("demo.end")
        except KeyboardInterrupt:
            print(f"Stopped; all is in {folder}.", file=sys.stderr)
            raise
        finally:
            view.stop()
            conductor.close()
            journal.close()
        report = make_report(facts, judge(facts), machine)
        text = write_report(folder, report, facts)
        if as_json:
            print(text)
        else:
            console.print(closing(report), markup=False, highlight=False, soft_wrap=True)
            console.print(f"\nReport: {folder / 'report.html'}", highlight=False, soft_wrap=True)
        return 0 if report["ok"] else 1


def _clear(folder: Path) -> None:
    """Remove a former demo, and nothing that is not one.

    Raises:
        NodeError: CFG_USAGE when the folder holds something else; STO_UNWRITABLE.
    """
    present = [folder / name for name in _OURS if (folder / name).exists()]
    journal = folder / _JOURNAL
    if present and not journal.exists():
        raise NodeError(
            Code.CFG_USAGE,
            f"{folder} holds {present[0].name}, but no demo made it.",
            fix="Give the demo a folder of its own with --dir.",
        )
    try:
        for each in present:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        journal.unlink(missing_ok=True)
    except OSError as error:
        raise NodeError(
            Code.STO_UNWRITABLE, f"{error.filename} cannot be removed: {error.strerror}."
        ) from error
