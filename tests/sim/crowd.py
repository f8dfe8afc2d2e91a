"""Runs of many members: how the machine and its control traffic behave as a run grows."""

import time
from dataclasses import dataclass
from datetime import timedelta

from diloco.member.messages import Heartbeat
from diloco.rounds.state import Timing
from protocol.messages import encode
from tests.sim.judge import Judge
from tests.sim.setting import Shape
from tests.sim.world import World

SEATS = 31
HEARTBEAT = 2.0  # seconds


@dataclass(frozen=True)
class Grown:
    """What a run of many members was like.

    Attributes:
        members: Members.
        rounds: Rounds decided.
        events: Events that all machines took.
        bytes_per_member_round: Bytes of statements and decided values that a member sent, mean per round.
        signs_of_life: Bytes of heartbeats that a member sent, mean per round.
        seconds: Processor seconds.
        everyone: Share of the rounds' contributions that were there: members in a roster, of those with a lease.
    """

    members: int
    rounds: int
    events: int
    bytes_per_member_round: float
    signs_of_life: float
    seconds: float
    everyone: float


def grow(members: int, *, rounds: int, replaced: int, seed: int = 0) -> Grown:
    """Run ``rounds`` rounds of ``members`` members, of which ``replaced`` are lost and replaced in each round."""
    began = time.process_time()
    judge = Judge()
    timing = Timing(
        floor=timedelta(seconds=4),
        most=timedelta(seconds=20),
        attempt=timedelta(seconds=20),
        grace=timedelta(seconds=1),
    )
    voters = min(SEATS, members)
    shape = Shape(
        voters=voters,
        others=members - voters,
        train=2.0,
        bandwidth=1e12,
        chunks=4,
        tick=1.0,
        slow_tick=8.0,
        timing=timing,
    )
    world = World(shape, seed, judge)
    named = members
    for number in range(rounds):
        if not world.run(until=world.now + 600.0, when=lambda: world.newest[1] >= number):  # noqa: B023
            raise AssertionError(f"round {number} is not decided")
        living = [process for process in world.living() if process.state is not None]
        for process in world.random.sample(living, replaced):
            process.disturbed = float("inf")
            process.kill()
            world.add(f"{'v' if process.seated else 'w'}x{named:05}", process.seated)
            named += 1
    chain = max((p.disk.chain for p in world.processes), key=len)
    leased = sum(len(before.value.leases) for before in chain[:-1])
    there = sum(len(certified.value.roster) for certified in chain[1:])
    beat = Heartbeat(epoch=0, round=rounds, attempt=0, phase="training", step=10, steps=20, sentence="x" * 60)
    beats = (
        world.now / HEARTBEAT * sum(len(world.circle_of(chain[-1], p.name)) for p in world.living()) / members
    )
    return Grown(
        members=members,
        rounds=rounds,
        events=world.events,
        bytes_per_member_round=sum(p.sent for p in world.processes) / members / rounds,
        signs_of_life=beats * (len(encode(beat)) + 150) / rounds,
        seconds=time.process_time() - began,
        everyone=there / leased,
    )
