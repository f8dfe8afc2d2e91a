"""What five real daemons do when some of them are stopped, killed, or cannot write; the others lose nothing."""

import pytest

from tests.chaos import disks
from tests.chaos.accounts import work_of
from tests.chaos.swarm import Swarm


@pytest.mark.failure_mode(12, 21)
def test_a_stopped_node_is_noticed_left_out_and_comes_back(five: Swarm) -> None:
    ada, bob = five["ada"], five.node("bob")
    before = ada.mark()
    bob.stop()
    gone = ada.wait("peer.gone", lambda event: event["peer"] == bob.peer, since=before)
    assert "silent" in gone["why"]
    five.committed_after(five.newest(), without=bob.peer)
    bob.go_on()
    ada.contributed(bob.peer, since=ada.mark())


@pytest.mark.failure_mode(18)
def test_the_death_of_the_program_that_finds_peers_disturbs_no_round(five: Swarm) -> None:
    cyd = five.node("cyd")
    before = five.newest()
    assert cyd.kill_helper()
    five["ada"].contributed(cyd.peer, since=five["ada"].mark())
    assert five.newest() > before


@pytest.mark.skipif(bool(disks.missing()), reason=disks.missing() or "there are small disks")
def test_a_node_whose_disk_is_full_promises_nothing_and_the_others_go_on(five: Swarm) -> None:
    eve = five.node("eve")
    assert eve.disk is not None
    eve.disk.fill()
    before = five.newest()
    five.committed_after(before + 2)
    eve.disk.clear()
    five["ada"].contributed(eve.peer, since=five["ada"].mark())
    assert eve.runs


@pytest.mark.failure_mode(3, 7)
def test_a_leader_killed_in_the_middle_of_a_reduce_costs_the_others_nothing(five: Swarm) -> None:
    leader = five.caught("reduce.progress", lambda: [n for n in (five.leader(),) if n and n.name != "ada"])
    before = five.newest()
    others = [node for node in five.observers() if node is not leader]
    places = {node.name: node.mark() for node in others}
    leader.kill()
    five.committed_after(before + 1, without=leader.peer)
    five.check_digests()
    five.check_values()
    for node in others:
        assert work_of(node.look()[places[node.name] :]).lost == 0, "not one inner step"


@pytest.mark.failure_mode(26)
def test_the_founder_killed_and_never_back_is_missed_by_nobody(five: Swarm) -> None:
    ada = five.node("ada")
    before = five.newest()
    ada.kill()
    commit = five.committed_after(before + 2, without=ada.peer)
    assert len(commit["roster"]) == 3
    five.check_digests()
    five.check_values()
