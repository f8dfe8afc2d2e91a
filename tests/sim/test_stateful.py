"""The machine under any order of events that Hypothesis thinks of: messages are held, dropped, repeated, reordered."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from diloco.rounds.events import Gone, Leave, Seen, Tick
from tests.sim.judge import Judge
from tests.sim.setting import Shape
from tests.sim.world import World

MEMBERS = st.integers(0, 4)


class Rounds(RuleBasedStateMachine):
    """Up to five members; time, links, processes and disks are in the hands of Hypothesis, the judge sees all."""

    @initialize(voters=st.integers(1, 5), seed=st.integers(0, 1000))
    def begin(self, voters: int, seed: int) -> None:
        self.judge = Judge()
        self.world = World(Shape(voters=voters, train=0.5), seed, self.judge)
        self.world.troubled = True
        for process in self.world.processes:
            process.disturbed = float("inf")
        self.world.run(until=0.5)

    def member(self, number: int) -> Any:
        return self.world.processes[number % self.world.shape.voters]

    @rule(seconds=st.floats(0.01, 6.0))
    def time_passes(self, seconds: float) -> None:
        self.world.run(until=self.world.now + seconds)

    @rule(number=MEMBERS)
    def a_member_dies_or_comes_back(self, number: int) -> None:
        process = self.member(number)
        if process.alive:
            process.kill()
        elif not process.left:
            process.boot_up()

    @rule(number=MEMBERS)
    def a_member_sleeps_or_wakes(self, number: int) -> None:
        process = self.member(number)
        if process.alive and not process.paused:
            process.pause()
        else:
            process.resume()

    @rule(one=MEMBERS, other=MEMBERS)
    def a_link_breaks(self, one: int, other: int) -> None:
        self.world.links.cut({(self.member(one).name, self.member(other).name)})

    @rule(share=st.floats(0.0, 0.6))
    def the_network_is_rough_or_whole(self, share: float) -> None:
        self.world.links.calm()
        self.world.links.loss = self.world.links.duplication = self.world.links.late = share

    @rule(number=MEMBERS, about=MEMBERS)
    def a_member_is_wrong_about_another(self, number: int, about: int) -> None:
        process, name = self.member(number), self.member(about).name
        if process.state is not None and process.name != name:
            process.feed(Gone(name) if name not in process.state.gone else Seen(name))

    @rule(number=MEMBERS)
    def a_member_ticks(self, number: int) -> None:
        process = self.member(number)
        if process.state is not None and not process.paused:
            process.feed(Tick())

    @rule(number=MEMBERS)
    def a_member_wants_to_leave(self, number: int) -> None:
        process = self.member(number)
        if process.state is not None and not process.paused:
            process.feed(Leave())

    @rule(number=MEMBERS)
    def a_disk_fills_or_has_room(self, number: int) -> None:
        disk = self.member(number).disk
        disk.full = not disk.full

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def members_that_decided_a_round_decided_it_alike(self) -> None:
        chains = [process.disk.chain for process in self.world.processes]
        longest = max(chains, key=len)
        for chain in chains:
            assert [c.digest for c in chain] == [c.digest for c in longest[: len(chain)]]


Rounds.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestRounds = Rounds.TestCase
