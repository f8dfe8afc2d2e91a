"""Each rule that looks fussy is needed: without it some schedule splits or halts the run, and the checks see it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from diloco.rounds import certificate, duties, hearing, moves, planning, roster, state
from diloco.rounds import electorate as electorates
from diloco.rounds.events import Persist
from protocol.errors import NodeError
from tests.diloco.rounds.swarm import Swarm

FIVE = ("anna", "bert", "carl", "dora", "emil")


def storm(count: int, seed: int, loss: float = 0.3, until: float = 90.0) -> Swarm:
    """Loss, cuts that move, kills and restarts; then peace."""
    swarm = Swarm(FIVE[:count], rounds=4, seed=seed, loss=loss)
    names = FIVE[:count]
    down: list[str] = []
    swarm.train_time = lambda name, r: 1.0 + swarm.random.random()

    def blow() -> None:
        choice = swarm.random.random()
        if down and choice < 0.4:
            swarm.restart(down.pop())
        elif len(down) < count // 2 and choice < 0.7:
            victim = swarm.random.choice([n for n in names if n not in down])
            swarm.kill(victim)
            down.append(victim)
        else:
            side = {n for n in names if swarm.random.random() < 0.5}
            swarm.cut = lambda a, b: (a in side) != (b in side)
        if swarm.now < until:
            swarm.at(swarm.now + 0.5 + 4 * swarm.random.random(), blow)
        else:
            for name in list(down):
                swarm.restart(name)
            swarm.loss, swarm.cut = 0.0, lambda a, b: False

    swarm.at(1.5, blow)
    swarm.run(until=until + 200, when=lambda: all(n.alive and n.state.finished for n in swarm.nodes.values()))
    return swarm


def survives(count: int, seed: int) -> bool:
    """Whether a storm ends with one chain and everyone at its end."""
    try:
        swarm = storm(count, seed)
        swarm.check()
    except (AssertionError, NodeError, ValueError):
        return False
    return all(node.state.finished for node in swarm.nodes.values())


def caught(seeds: range, counts: tuple[int, ...] = (5, 4, 3)) -> int | None:
    """The first seed in which a mutant is caught."""
    for seed in seeds:
        if not survives(counts[seed % len(counts)], seed):
            return seed
    return None


def test_the_machine_itself_survives_the_same_storms() -> None:
    assert caught(range(15)) is None


Patch = pytest.MonkeyPatch


def no_lock_between_attempts(patch: Patch) -> None:
    patch.setattr(planning, "choose", lambda rules, tip, tip_digest, readys: planning.Choice("free"))


def majority_of_those_who_are_there(patch: Patch) -> None:
    def is_quorum(here: state.State, peers: set[str]) -> bool:
        voters = {e.peer for e in here.value.electorate}
        return 2 * len(voters & peers) > len(voters & set(here.readys))

    patch.setattr(state.State, "is_quorum", is_quorum)
    for module in (planning, roster, certificate):
        patch.setattr(module, "is_quorum", lambda present, electorate, tie_breaker: bool(present))


def votes_forgotten_by_a_restart(patch: Patch) -> None:
    restart = Swarm.restart

    def forgetful(swarm: Swarm, name: str) -> None:
        swarm.nodes[name].disk.promise = None
        restart(swarm, name)

    patch.setattr(Swarm, "restart", forgetful)


def votes_said_before_they_are_on_disk(patch: Patch) -> None:
    vote = duties.vote

    def hasty(here: state.State, now: float) -> moves.Step:
        after, effects = vote(here, now)
        return after, [effect for effect in effects if not isinstance(effect, Persist)]

    patch.setattr(duties, "vote", hasty)


def tie_breaker_that_follows_the_attempt(patch: Patch) -> None:
    def is_quorum(here: state.State, peers: set[str]) -> bool:
        electorate = here.value.electorate
        return electorates.is_quorum(peers, electorate, electorate[here.attempt % len(electorate)].peer)

    def quorum_of(tip: Any, readys: Any, attempt: int) -> bool:
        present = [peer for peer, ready in readys.items() if ready.attempt == attempt]
        return electorates.is_quorum(
            present, tip.electorate, tip.electorate[attempt % len(tip.electorate)].peer
        )

    patch.setattr(state.State, "is_quorum", is_quorum)
    patch.setattr(planning, "quorum_of", quorum_of)
    patch.setattr(
        roster, "base_of", lambda tip, readys: next((ready.base for ready in readys.values()), None)
    )
    patch.setattr(
        certificate, "is_quorum", lambda held, electorate, tie_breaker: 2 * len(held) >= len(electorate)
    )


def leaders_of_ones_own_view(patch: Patch) -> None:
    patch.setattr(state.State, "leader", lambda here, attempt: here.me)


def a_vote_that_is_not_a_promise(patch: Patch) -> None:
    adopt = moves.adopt

    def lax(here: state.State, attempt: int, now: float) -> moves.Step:
        after, effects = adopt(here, attempt, now)
        return replace(after, ballot=None), effects

    patch.setattr(moves, "adopt", lax)


def certificates_not_repeated_to_the_late(patch: Patch) -> None:
    patch.setattr(Swarm, "_send_chain", lambda swarm, node, peer, round_number: None)


def a_timer_that_runs_without_a_quorum(patch: Patch) -> None:
    def run_timer(here: state.State, now: float) -> moves.Step:
        if here.said < 0 or here.said != here.promised:
            return here, []
        timer = here.timer if here.timer is not None else now + 1.0
        here = replace(here, timer=timer)
        return duties.adopt_and_speak(here, here.promised + 1, now) if now >= timer else (here, [])

    patch.setattr(duties, "run_timer", run_timer)


def a_taken_up_value_that_is_refused(patch: Patch) -> None:
    check = hearing.check_close

    def strict(here: state.State, close: Any) -> None:
        check(here, close)
        if here.forced:
            raise ValueError("orders have come since")

    patch.setattr(hearing, "check_close", strict)


MUTANTS: dict[Callable[[Patch], None], tuple[int, ...]] = {
    no_lock_between_attempts: (5, 4, 3),
    majority_of_those_who_are_there: (5, 4, 3),
    votes_forgotten_by_a_restart: (5, 4, 3),
    tie_breaker_that_follows_the_attempt: (4, 2),
    leaders_of_ones_own_view: (5, 4, 3),
    a_vote_that_is_not_a_promise: (5, 4, 3),
    certificates_not_repeated_to_the_late: (5, 4, 3),
    a_timer_that_runs_without_a_quorum: (5, 4, 3),
    a_taken_up_value_that_is_refused: (5, 4, 3),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_caught(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    assert caught(range(300), MUTANTS[mutant]) is not None


def voter_killed_after_its_vote(seed: int) -> Swarm:
    """Of five voters two are cut off; the first voter dies right after its vote; then those who decided vanish."""
    swarm = Swarm(FIVE, rounds=2, seed=seed)
    leader = swarm.nodes[swarm.nodes["anna"].state.leader(0)]
    first, second, third, fourth = (node for node in swarm.nodes.values() if node is not leader)
    swarm.run(when=lambda: first.state.plan is not None and second.state.plan is not None)
    swarm.cut = lambda a, b: bool({third.name, fourth.name} & {a, b})
    swarm.run(when=lambda: bool(first.votes or second.votes))
    voter, other = (first, second) if first.votes else (second, first)
    swarm.kill(voter.name)
    swarm.run(when=lambda: len(leader.disk.chain) == 2)
    decided = {leader.name, other.name}
    swarm.cut = lambda a, b: (a in decided) != (b in decided)
    swarm.restart(voter.name)
    swarm.run(until=swarm.now + 300, when=lambda: len(third.disk.chain) >= 2)
    assert len(third.disk.chain) >= 2, "three of five go on"
    return swarm


@pytest.mark.parametrize("seed", range(3))
def test_a_vote_on_disk_binds_its_voter_after_a_restart(seed: int) -> None:
    voter_killed_after_its_vote(seed).check()


@pytest.mark.parametrize("seed", range(3))
def test_a_vote_said_before_it_is_on_disk_splits_the_run(seed: int, monkeypatch: Patch) -> None:
    votes_said_before_they_are_on_disk(monkeypatch)
    with pytest.raises(AssertionError, match="another round"):
        voter_killed_after_its_vote(seed).check()
