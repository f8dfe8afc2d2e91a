"""The way through the demo: folder, nodes, verdict, report."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from node.children import share_of_cores
from node.demo.conductor import Conductor, resumed_note
from node.demo.deeds import Deeds, Facts
from node.demo.folder import DemoFolder, hold, open_demo
from node.demo.history import History
from node.demo.html import page
from node.demo.options import DemoOptions, require_memory, run_file
from node.demo.report import make_report, samples_of, write_report
from node.demo.scenario import Cast
from node.demo.verdict import judge
from node.demo.view import View, closing
from node.eventlog import EventLog
from node.machine import Machine, measure
from node.needs import parameter_count
from node.runfile import load


def run_demo(
    *,
    nodes: int,
    rounds: int,
    inner_steps: int,
    workers_per_node: int,
    seed: int,
    folder: Path,
    as_json: bool,
    compare: bool,
    browse: bool = False,
) -> int:
    """Run the demo, print what came out, and write the report.

    Call it in the main thread: the nodes die with the thread that started them.

    Args:
        nodes: That begin together.
        rounds: Of the run.
        inner_steps: Of each round.
        workers_per_node: Worker processes that share a node's model.
        seed: Of the run.
        folder: Where everything goes; an unfinished demo in it is gone on with.
        as_json: Print the report and nothing else.
        compare: Train the synchronous baseline, too.
        browse: Open the dashboard in a browser.

    Returns:
        0 when all that the demo promises happened, else 1.

    Raises:
        NodeError: What keeps it from starting: the folder, memory, disk.
        KeyboardInterrupt: Ctrl-C; by then all its processes have ended.
    """
    options = DemoOptions(nodes, rounds, inner_steps, workers_per_node, seed)
    cast = Cast.of(nodes)
    console = Console()
    with hold(folder) as place, ending_as_by_keyboard():
        machine = measure(folder)
        goes_on = open_demo(place, cast.names, options)
        if not goes_on:
            text = run_file(options, machine)
            require_memory(options, text, machine)
            place.run_file.write_text(text, encoding="utf-8")
        facts = Facts(options, parameter_count(load(place.run_file).model), History(cast.names), Deeds())
        view = View(facts, console, quiet=as_json)
        journal = EventLog(place.journal)
        try:
            _conduct(place, facts, view, journal, machine, compare=compare, fresh=not goes_on, browse=browse)
        except KeyboardInterrupt:
            print(
                f"Stopped. The same command goes on from the last committed round; all is in {folder}.",
                file=sys.stderr,
            )
            raise
        finally:
            journal.close()
        return _conclude(place, facts, machine, console, as_json=as_json)


def _conduct(
    place: DemoFolder,
    facts: Facts,
    view: View,
    journal: EventLog,
    machine: Machine,
    *,
    compare: bool,
    fresh: bool,
    browse: bool,
) -> None:
    """Run the nodes, and the baseline, to their end."""
    options = facts.options
    threads = share_of_cores((options.nodes + 1) * options.workers_per_node, machine.cores)
    journal.emit("demo.start", options=options.plain(), compare=compare, fresh=fresh)
    conductor = Conductor(place, facts, view, journal, threads=threads, fresh=fresh, browse=browse)
    view.start()
    try:
        if not fresh:
            view.note(resumed_note(facts))
        conductor.run()
        if compare:
            conductor.compare()
        journal.emit("demo.end")
        conductor.read()
    finally:
        view.stop()
        conductor.close()


def _conclude(place: DemoFolder, facts: Facts, machine: Machine, console: Console, *, as_json: bool) -> int:
    samples = samples_of(facts)
    report = make_report(facts, judge(facts, samples), samples, machine)
    text = write_report(place.path, report, page(report, facts))
    if as_json:
        print(text)
    else:
        console.print(closing(report, facts.cast))
        console.print(
            f"\nReport: {place.path / 'report.html'}   Model: {place.model}", highlight=False, soft_wrap=True
        )
    return 0 if report["ok"] else 1


@contextmanager
def ending_as_by_keyboard() -> Iterator[None]:
    """Have SIGTERM and SIGHUP end the demo as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
