"""Daemons as people start them: real processes, directory, connections, workers and training.

The tests of this file share one swarm and tell one story, but each looks at what it finds running.
"""

import os
import signal
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e.cluster import RUN, Cluster, command, settings
from tests.e2e.remains import Remains

FIRST = ("ada", "bob", "cyd")


# ---- a run, and who joins it


def test_status_says_what_a_node_does_why_and_with_whom(swarm: Cluster) -> None:
    ada = swarm["ada"]
    status = ada.status()
    assert status["phase"] in ("training", "ready", "reducing", "voting", "syncing")
    assert status["reason"] and status["sentence"].endswith(".") and status["since"]
    assert {swarm[name].peer for name in FIRST} <= set(status["members"])
    assert (status["peer"], status["pid"], status["name"]) == (ada.peer, ada.pid, "ada")
    assert (status["run_name"], status["rounds"]) == ("tiny", 100_000)
    assert status["roles"] == ["coordinator", "trainer"] and status["multiaddrs"] == [ada.address]
    assert status["round"] > 0 and status["bytes_sent"] > 0 and status["loss"] > 0


def test_a_second_start_on_the_same_data_directory_is_refused(swarm: Cluster) -> None:
    ada = swarm["ada"]
    words = command("run", ada.file, "--dir", ada.folder).refused("E-STO-001")
    assert str(ada.pid) in words and str(ada.folder) in words
    assert command("init", ada.file, "--dir", ada.folder).refused("E-STO-001")
    assert ada.runs


def test_a_run_file_that_contradicts_the_run_is_refused_with_its_lines(swarm: Cluster) -> None:
    file = swarm.folder / "other.toml"
    file.write_text(settings(RUN, {"inner_steps = 4": "inner_steps = 99"}))
    line = file.read_text().splitlines().index("inner_steps = 99") + 1
    address = swarm["bob"].address
    words = command("run", file, "--join", address, "--dir", swarm.folder / "other").refused("E-CFG-004")
    assert f"other.toml, line {line}: `round.inner_steps`" in words


def test_members_with_one_and_two_workers_have_equal_bits_in_every_round(swarm: Cluster) -> None:
    for name in FIRST:
        for other in FIRST:
            swarm[other].contributed(swarm[name].peer)
    assert len(swarm["bob"].wait("workers.ready")["pids"]) == 2
    for name in FIRST:
        swarm[name].wait("apply", lambda event: event["round"] >= 3)
    assert swarm.check_digests() >= 3
    swarm.check_values()


@pytest.mark.failure_mode(6)
def test_a_fourth_joins_a_running_swarm_by_the_address_of_another_than_the_founder(swarm: Cluster) -> None:
    dee = swarm["dee"]
    assert dee.wait("corpus.fetching")["files"] == 11, (
        "it had no copy of the ten texts, nor of the first weights"
    )
    state = dee.wait("state.downloaded")
    assert set(state["holders"]) <= {swarm[name].peer for name in FIRST}
    (same,) = [event for event in swarm["ada"].of("apply") if event["round"] == state["round"]]
    assert state["digest"] == same["digest"]
    first = dee.contributed(dee.peer)["round"]
    swarm["ada"].contributed(dee.peer)
    dee.wait("apply", lambda event: event["round"] > first)
    assert swarm.check_digests() >= 3
    swarm.check_values()
    told = [event["sentence"] for event in dee.of("node.phase") if event["phase"] == "joining"]
    assert len(told) == len(set(told)), "a reason that stays is said once"


def test_the_model_of_a_running_node_loads_into_transformers(swarm: Cluster, tmp_path: Path) -> None:
    ended = command("export", swarm["bob"].folder, "--to", tmp_path / "model")
    assert ended.status == 0, ended.err
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", use_safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    tokens = tokenizer("7 and 2 are 9.\n", return_tensors="pt")["input_ids"]
    assert model(tokens).logits.isfinite().all()
    assert swarm["bob"].runs


# ---- the founder dies


@pytest.mark.failure_mode(26)
def test_rounds_go_on_without_the_founder_and_it_comes_back(swarm: Cluster) -> None:
    ada, bob = swarm["ada"], swarm["bob"]
    others = [node for node in swarm.running() if node is not ada]
    remains = Remains.of(ada.pid)
    assert len(remains.processes) >= 4, "itself, its directory with the helper, its worker"
    assert len(remains.ports) >= 2
    ada.wait("reduce.progress", lambda event: 0.2 < event["fraction"] < 0.8, since=ada.mark())
    ada.signal(signal.SIGKILL)
    assert ada.ended() == -signal.SIGKILL
    last = max(node.newest_round() for node in others)
    remains.wait_until_gone()
    remains.check_nothing_is_left()
    assert not [path for path in swarm.temporary.rglob("*") if path.is_socket()]
    assert not any((ada.folder / "directory").iterdir())

    # bob came by ada's address, and its directory has to find the way back without it
    os.kill(bob.wait("directory.ready")["pids"][0], signal.SIGKILL)
    since = bob.mark()
    bob.wait("directory.ready", since=since)
    assert bob.of("directory.died", since)

    eve = swarm.add("eve").start("run", "--join", bob.address)
    for node in others:
        node.wait("commit", lambda event, me=node.peer: event["round"] > last + 2 and me in event["roster"])
        rosters = [event["roster"] for event in node.of("commit") if event["round"] > last + 2]
        assert rosters and not any(ada.peer in roster for roster in rosters)
    waits = eve.wait("node.phase", lambda event: event["reason"] == "admission")
    assert "no coordinator of the run can be reached" in waits["sentence"]
    assert eve.runs and not eve.of("admission.received")

    for file in ada.folder.glob("ledger.sqlite*"):
        file.unlink()  # even so it does not found the run a second time
    since = ada.mark()
    ada.start("run")
    caught_up = ada.wait("member.joined", since=since)["round"]
    assert caught_up > last and not ada.of("run.started", since)
    ada.contributed(ada.peer, since=since)
    eve.wait("admission.received")
    for node in (ada, bob, eve):
        node.contributed(eve.peer)
    swarm.check_digests()
    swarm.check_values()


# ---- leaving, and everyone's return


def test_a_node_that_is_stopped_finishes_its_round_and_says_goodbye(swarm: Cluster) -> None:
    dee, ada = swarm["dee"], swarm["ada"]
    since = ada.mark()
    ended = command("stop", "--dir", dee.folder)
    assert (ended.status, dee.ended()) == (0, 0), ended.err
    kinds = [event.kind for event in dee.look()]
    assert kinds.index("drain.begin") < kinds.index("goodbye") < kinds.index("node.exit")
    assert not dee.of("drain.cut") and dee.of("node.exit")[-1]["status"] == 0
    gone = ada.wait("peer.gone", lambda event: event["peer"] == dee.peer, since=since)
    assert "goodbye" in gone["why"]
    assert not (dee.folder / "status.sock").exists()
    ada.wait("commit", lambda event: dee.peer not in event["roster"], since=ada.mark())


def test_a_member_that_is_banned_ends_and_says_so(swarm: Cluster) -> None:
    ada, cyd = swarm["ada"], swarm["cyd"]
    words = ("admin", "ban", cyd.peer, "--reason", "it was time")
    assert command(*words, "--dir", swarm["bob"].folder).refused("E-CFG-006"), "only the founder may"
    ended = command(*words, "--dir", ada.folder)
    assert ended.status == 0 and cyd.peer in ended.out, ended.err
    assert cyd.ended() == 1
    assert "E-RND-006: " in cyd.said() and "Traceback" not in cyd.said()
    ada.wait("commit", lambda event: cyd.peer not in event["roster"], since=ada.mark())
    again = command("run", cyd.file, "--dir", cyd.folder)
    assert again.refused("E-RND-006"), "it is not forgotten"


@pytest.mark.failure_mode(39)
def test_a_swarm_that_stopped_as_a_whole_goes_on_where_it_was(swarm: Cluster) -> None:
    nodes = swarm.running()
    assert len(nodes) >= 3
    remains = [Remains.of(node.pid) for node in nodes]
    for node in nodes:
        node.signal(signal.SIGTERM)
    assert [node.ended() for node in nodes] == [0] * len(nodes)
    for each in remains:
        each.wait_until_gone()
        each.check_nothing_is_left()
    newest_of = {node: node.newest_round() for node in nodes}
    assert not [path for path in swarm.temporary.rglob("*") if not path.is_dir()], "no temporary file"

    bob = swarm["bob"]
    newest = max((bob.folder / "checkpoints").glob("*.safetensors"))
    data = bytearray(newest.read_bytes())
    data[-100] ^= 1
    bob.file.write_text(
        settings(bob.file.read_text(), {"workers = 2": "workers = 1"})
    )  # that is its own affair
    newest.unlink()  # its bytes may be shared with the shelf's by a hard link
    newest.write_bytes(data)

    marks = {node: node.mark() for node in nodes}
    for node in nodes:
        dead = swarm["dee"].address  # the address in a start's command line may be an old one
        node.start("run", "--join", dead)
    first = {node: node.wait("commit", since=marks[node])["round"] for node in nodes}
    assert all(first[node] > newest_of[node] for node in nodes), "no round is decided twice"
    assert min(first.values()) <= max(newest_of.values()) + 1, "and none is left out"
    assert newest.name.removesuffix(".safetensors") in str(bob.of("checkpoint.damaged", marks[bob])[0].fields)
    for node in nodes:
        for other in nodes:
            other.contributed(node.peer, since=marks[other])
    swarm.check_digests()
    swarm.check_values()


def test_a_node_that_is_stopped_at_once_leaves_nothing_either(swarm: Cluster) -> None:
    eve = swarm["eve"]
    remains, since = Remains.of(eve.pid), eve.mark()
    ended = command("stop", "--now", "--dir", eve.folder)
    assert ended.status == 0, ended.err
    assert eve.ended() != 0 and not eve.of("goodbye", since)
    remains.wait_until_gone()
    remains.check_nothing_is_left()
    bob = swarm["bob"]
    bob.wait("commit", lambda event: eve.peer not in event["roster"], since=bob.mark())
