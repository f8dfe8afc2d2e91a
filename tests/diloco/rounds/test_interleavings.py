"""Every interleaving of two attempts among five voters certifies at most one value, and who slept follows it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from diloco.rounds import moves, planning
from diloco.rounds.certificate import Certified, certify
from diloco.rounds.events import Arrived, Decision, Event, Fetch, Held, Reduce, Reduced, Say, Tick
from diloco.rounds.machine import advance
from diloco.rounds.roster import bitmap
from diloco.rounds.state import State
from diloco.rounds.statements import Close, Proposal, Ready, Vote
from diloco.rounds.values import ReducedChunk, value_digest
from protocol.envelope import Sealed, seal
from protocol.units import PeerId
from tests.diloco.rounds.swarm import CHUNKS, RUN, KeyedSigner, Swarm

FIVE = ("anna", "bert", "carl", "dora", "emil")
LATE = 1e9  # on the clock of one whose timer has ended


@dataclass(frozen=True, eq=False)
class Local:
    """One member, what it has said by kind and attempt, and what has happened to it, in order."""

    state: State
    said: Mapping[tuple[type, int], Sealed[Any]]
    past: tuple[str, ...] = ()

    def votes(self) -> dict[int, bytes]:
        return {attempt: s.message.value for (kind, attempt), s in self.said.items() if kind is Vote}


World = tuple[Local, ...]
"""The five in the order of their names; what they said and what was not delivered is in them."""


class Explorer:
    """Goes through all worlds. What one member does depends on itself alone, so each of its steps is taken once."""

    def __init__(self) -> None:
        swarm = Swarm(FIVE, rounds=2)
        object.__setattr__(swarm.timing, "floor", timedelta(0))
        self.first, self.second = (FIVE.index(swarm.nodes["anna"].state.leader(a)) for a in (0, 1))
        leader = swarm.nodes[FIVE[self.first]]
        swarm.run(when=lambda: leader.state.ballot is not None)
        said = {(type(s.message), 0): s for s in leader.said.values()}
        assert all(node.state.plan is not None and node.state.timer for node in swarm.nodes.values())
        assert (Close, 0) in said, "everybody has the proposal, and its leader has just said Close"
        self.start: World = tuple(
            Local(node.state, said if node is leader else {}) for node in swarm.nodes.values()
        )
        self._steps: dict[tuple[int, str, bytes], Local] = {}
        self._kept: list[Local] = []  # so that an id stays one member's

    def step(self, local: Local, what: str, *events: Event) -> Local:
        """Feed one member; what it asks of itself is done at once, what it says waits to be delivered."""
        raw = b"".join(event.sealed.raw for event in events if isinstance(event, Arrived))
        known = self._steps.get((id(local), what, raw))
        if known is None:
            known = self._steps[id(local), what, raw] = self._advance(local, what, list(events))
            self._kept.append(local)
        return known

    def _advance(self, local: Local, what: str, events: list[Event]) -> Local:
        state, said = local.state, dict(local.said)
        now = LATE if "timer" in (*local.past, what) else state.attempt_began
        while events:
            state, effects = advance(state, events.pop(0), now)
            for effect in effects:
                match effect:
                    case Say(body):
                        sealed = seal(KeyedSigner(PeerId(state.me)), RUN, body)
                        said[type(body), body.attempt] = sealed
                        events.append(Arrived(sealed))
                    case Fetch(value):
                        events.append(Held(value))
                    case Reduce() if effect.leader == state.me:
                        size = len(effect.plan.roster)
                        chunk = ReducedChunk(
                            digest=b"update of attempt %13d" % effect.attempt,
                            included=bitmap(range(size), size),
                        )
                        chunks = (chunk,) * len(CHUNKS)
                        events.append(Reduced(effect.epoch, effect.round, effect.attempt, chunks))
        return Local(state, said, (*local.past, what))

    def following(self, world: World) -> Iterator[World]:
        """Every world that one more delivery, or the end of one more timer, leads to."""
        first, second = world[self.first], world[self.second]
        close, ask = first.said[Close, 0], second.said.get((Close, 1))
        for place, local in enumerate(world):
            if local.state.attempt == 0 and "timer" not in local.past:
                yield self._put(world, place, self.step(local, "timer", Tick()))
            if local is not first and "close 0" not in local.past:
                yield self._put(world, place, self.step(local, "close 0", Arrived(close)))
            if ask is not None and local is not second and "close 1" not in local.past:
                both = (Arrived(second.said[Proposal, 1]), Arrived(ask))
                yield self._put(world, place, self.step(local, "close 1", *both))
            ready, name = local.said.get((Ready, 1)), f"ready of {FIVE[place]}"
            if (
                ready is not None
                and local is not second
                and second.state.proposed < 1
                and name not in second.past
            ):
                yield self._put(world, self.second, self.step(second, name, Arrived(ready)))

    @staticmethod
    def _put(world: World, place: int, local: Local) -> World:
        return (*world[:place], local, *world[place + 1 :])

    def key(self, world: World) -> Any:
        """What the rest depends on: the three that lead neither attempt may change places."""
        first, second = world[self.first], world[self.second]
        heard = {name for name in second.past if name.startswith("ready")}
        proposal = second.said.get((Proposal, 1))
        listed = (
            {}
            if proposal is None
            else {second.state.rules.unseal_ready(raw).sender for raw in proposal.message.readys}
        )
        others = [
            (
                set(local.past) - heard,
                local.votes(),
                local.state.attempt,
                f"ready of {name}" in heard,
                name in listed,
            )
            for name, local in zip(FIVE, world, strict=True)
            if local not in (first, second)
        ]
        leads = (set(second.past) - heard, second.votes(), second.state.attempt, second.state.proposed)
        mine = (set(first.past), first.votes(), first.state.attempt, f"ready of {FIVE[self.first]}" in heard)
        return _plain(mine), _plain(leads), *sorted(map(_plain, others))

    def certified(self, world: World) -> dict[bytes, Certified]:
        """Every value that somebody could certify from the votes that were given, in any attempt."""
        found: dict[bytes, Certified] = {}
        tip = self.start[0].state.tip
        for attempt in (0, 1):
            votes = [
                s for local in world for (kind, a), s in local.said.items() if kind is Vote and a == attempt
            ]
            for local in world:
                close = local.said.get((Close, attempt))
                given = [
                    vote
                    for vote in votes
                    if close and vote.message.value == value_digest(close.message.value)
                ]
                if close is not None and local.state.is_quorum({vote.sender for vote in given}):
                    made = certify(tip.value, tip.digest, close.message.value, attempt, given)
                    found[made.digest] = made
        return found

    def explore(self, look: Callable[[World], None]) -> int:
        """Look at every world once; returns how many there are."""
        seen, queue = {self.key(self.start)}, [self.start]
        while queue:
            world = queue.pop()
            look(world)
            for after in self.following(world):
                key = self.key(after)
                if key not in seen:
                    seen.add(key)
                    queue.append(after)
        return len(seen)


def _plain(part: Any) -> str:
    return repr([sorted(each) if isinstance(each, set) else each for each in part])


@pytest.mark.failure_mode(30)
def test_no_interleaving_of_two_attempts_certifies_two_values_and_who_slept_follows() -> None:
    explorer, counts = Explorer(), set[int]()

    def look(world: World) -> None:
        found = explorer.certified(world)
        counts.add(len(found))
        for made in found.values():
            for local in world:
                after, _ = advance(local.state, Decision(made), LATE)
                assert after.tip.digest == made.digest, "whatever it signed before it slept"

    worlds = explorer.explore(look)
    assert counts == {0, 1}
    assert worlds > 10_000, "it did not get far"


def no_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(planning, "choose", lambda rules, tip, tip_digest, readys: planning.Choice("free"))


def votes_forgotten(patch: pytest.MonkeyPatch) -> None:
    adopt = moves.adopt

    def lax(here: State, attempt: int, now: float) -> moves.Step:
        after, effects = adopt(here, attempt, now)
        return replace(after, ballot=None), effects

    patch.setattr(moves, "adopt", lax)


class Split(Exception):
    """Two values of one round are certified."""


@pytest.mark.parametrize("mutant", [no_lock, votes_forgotten], ids=lambda mutant: str(mutant.__name__))
def test_without_the_lock_between_attempts_some_interleaving_certifies_two(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer = Explorer()
    mutant(monkeypatch)

    def look(world: World) -> None:
        if len(explorer.certified(world)) > 1:
            raise Split

    with pytest.raises(Split):
        explorer.explore(look)
