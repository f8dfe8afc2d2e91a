"""When a demo goes on, when it begins anew, and what it never touches."""

from dataclasses import replace
from pathlib import Path

import pytest

from node import lifecycle
from node.demo.deeds import Deeds
from node.demo.folder import DemoFolder, hold, open_demo
from node.demo.options import DemoOptions, require_memory, run_file
from node.demo.scenario import Cast, Step
from node.eventlog import EventLog
from node.machine import Machine, measure
from node.runfile import parse
from protocol.errors import Code, NodeError
from tests.node.demo.story import OPTIONS, whole

NAMES = Cast.of(4).names


@pytest.fixture
def folder(tmp_path: Path) -> DemoFolder:
    return DemoFolder(tmp_path)


def test_an_empty_folder_is_a_new_demo(folder: DemoFolder) -> None:
    assert open_demo(folder, NAMES, OPTIONS) is False


def test_a_finished_demo_is_replaced(folder: DemoFolder) -> None:
    whole().write(folder)
    folder.model.mkdir()
    (folder.path / "notes.txt").write_text("mine")
    assert open_demo(folder, NAMES, OPTIONS) is False
    assert sorted(each.name for each in folder.path.iterdir()) == ["notes.txt"]


def test_a_demo_that_was_broken_off_goes_on(folder: DemoFolder) -> None:
    whole(until=5).write(folder)
    assert open_demo(folder, NAMES, OPTIONS) is True
    assert folder.node("node-1").exists()


def test_one_without_a_committed_round_begins_anew(folder: DemoFolder) -> None:
    whole(until=0).write(folder)
    assert open_demo(folder, NAMES, OPTIONS) is False
    assert not folder.node("node-1").exists()


def test_other_options_are_refused_with_the_ones_to_use(folder: DemoFolder) -> None:
    whole(until=5).write(folder)
    with pytest.raises(NodeError) as caught:
        open_demo(folder, NAMES, replace(OPTIONS, rounds=12))
    assert caught.value.code == Code.CFG_USAGE
    assert "--rounds 10" in caught.value.fix and "--inner-steps 20" in caught.value.fix


def test_what_no_demo_made_is_never_removed(folder: DemoFolder) -> None:
    (folder.path / "model").mkdir()
    with pytest.raises(NodeError, match="no demo made it"):
        open_demo(folder, NAMES, OPTIONS)
    assert (folder.path / "model").exists()


def test_a_node_that_still_runs_is_named(folder: DemoFolder) -> None:
    whole(until=5).write(folder)
    with lifecycle.hold(folder.node("node-2")), pytest.raises(NodeError, match="node-2 still runs") as caught:
        open_demo(folder, NAMES, OPTIONS)
    assert caught.value.code == Code.STO_LOCKED


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with hold(tmp_path / "demo"):
        with pytest.raises(NodeError) as caught, hold(tmp_path / "demo"):
            pass
        assert caught.value.code == Code.STO_LOCKED
    with hold(tmp_path / "demo"):
        pass


def test_a_step_whose_node_had_not_ended_happens_again() -> None:
    story = whole(until=9)
    deeds = Deeds.of(story.journal)
    assert set(deeds.done) == {Step.JOIN, Step.KILL, Step.LEAVE}
    cut = [event for event in story.journal if not (event.kind == "demo.exit" and event["node"] == "node-2")]
    restart = replace(story.journal[0], t=9e9)
    assert set(Deeds.of([*cut, restart]).done) == {Step.JOIN, Step.KILL}
    assert set(Deeds.of([*story.journal, restart]).done) == {Step.JOIN, Step.KILL, Step.LEAVE}


def test_the_journal_survives_a_line_that_was_cut_off(folder: DemoFolder) -> None:
    log = EventLog(folder.journal)
    log.emit("demo.start", options=OPTIONS.plain(), compare=False, fresh=True)
    log.close()
    with folder.journal.open("a") as file:
        file.write('{"schema":1,"t":1,"kind":"demo.e')
    assert open_demo(folder, NAMES, OPTIONS) is False


MACHINE: Machine = measure(Path("."))


def test_the_run_file_is_one_that_nodes_read() -> None:
    options = DemoOptions(nodes=3, rounds=9, inner_steps=7, workers_per_node=2, seed=5)
    runfile = parse(run_file(options, replace(MACHINE, cores=2, gpus=0)))
    assert (runfile.run.rounds, runfile.run.seed, runfile.round.inner_steps) == (9, 5, 7)
    assert (runfile.round.start_members, runfile.round.ghost_rounds) == (3, 0)
    assert runfile.limits.upload == 20_000_000 // 8
    assert (runfile.node.workers, runfile.node.threads, runfile.node.device) == (2, 1, "cpu")
    assert runfile.admission.seats >= 4


def test_a_large_machine_gives_each_worker_its_share_of_cores() -> None:
    runfile = parse(run_file(OPTIONS, replace(MACHINE, cores=20, gpus=1)))
    assert (runfile.node.threads, runfile.node.device) == (4, "auto")


def test_too_little_memory_is_said_before_anything_starts() -> None:
    small = replace(MACHINE, memory_available=2_000_000_000)
    with pytest.raises(NodeError) as caught:
        require_memory(OPTIONS, run_file(OPTIONS, small), small)
    assert caught.value.code == Code.SYS_MEMORY and "5 nodes need about" in caught.value.sentence


def test_six_gigabytes_are_enough_for_the_demo() -> None:
    fair = replace(MACHINE, memory_available=5_600_000_000, gpus=0)
    require_memory(OPTIONS, run_file(OPTIONS, fair), fair)
