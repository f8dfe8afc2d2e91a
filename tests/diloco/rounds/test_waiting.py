"""A member says what it really waits for."""

from diloco.rounds.waiting import waiting
from tests.diloco.rounds.swarm import Swarm


def test_who_is_dead_is_named_when_it_is_missed_for_a_quorum() -> None:
    swarm = Swarm(("anna", "bert"), rounds=6)
    swarm.run(when=lambda: all(node.state.round == 2 for node in swarm.nodes.values()))
    dead = swarm.nodes["anna"].state.value.tie_breaker
    (left,) = {"anna", "bert"} - {dead}
    swarm.kill(dead)
    swarm.run(until=swarm.now + 300)
    state = swarm.nodes[left].state
    assert dead in state.gone
    words = waiting(state, swarm.now)
    assert (words.phase, words.reason, words.missing) == ("ready", "quorum", (dead,))
    assert "1 of 2 voters are ready, no quorum" in words.sentence and dead in words.sentence
