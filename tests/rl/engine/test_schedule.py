"""The schedule alone, under random arrivals, ends, cancellations and updates, against a cache made of lists."""

import random

import pytest

from rl.engine.interface import CHUNK, MOST_REFILLS, Request
from rl.engine.schedule import PIECE, Running, Schedule, Work

SLOTS = 5


class Caches:
    """What each slot of each version holds: the tokens whose keys and values are in it, in order."""

    def __init__(self) -> None:
        self.slots: dict[int, list[list[int]]] = {}

    def follow(self, work: Work) -> None:
        slots = self.slots.setdefault(work.version, [[] for _ in range(SLOTS)])
        for move in work.moves:
            there = slots[move.target][: move.swap]
            slots[move.target] = slots[move.source][: move.length]
            assert len(slots[move.target]) == move.length
            if move.swap:
                slots[move.source] = there
        for read in work.reads:
            running = read.running
            assert slots[running.slot][: read.begin] == running.tokens[: read.begin]
            assert 0 < read.end - read.begin <= PIECE
            slots[running.slot] = running.tokens[: read.end]
        assert [running.slot for running in work.decode] == list(range(len(work.decode)))
        for running in work.decode:
            assert slots[running.slot][: running.computed] == running.tokens[:-1]
            slots[running.slot] = list(running.tokens)


@pytest.mark.parametrize("seed", range(60))
def test_slots_hold_what_their_sequences_say_whatever_happens(seed: int) -> None:
    draw = random.Random(seed)
    schedule, caches = Schedule(SLOTS, 0), Caches()
    ends: dict[str, int] = {}
    versions: dict[str, list[int]] = {}
    made = 0
    alive: list[Running] = []
    for _ in range(400):
        if draw.random() < 0.1 and made < 40:
            length = draw.choice([1, 2, 33, 300])
            group = draw.randint(1, 4)
            prompt = tuple(draw.randrange(1000) for _ in range(length))
            for _ in range(group):
                running = Running(
                    Request(f"r{made}", prompt, bytes(32)), schedule.newest, list(prompt), length
                )
                ends[f"r{made}"], versions[f"r{made}"] = draw.randint(1, 150), []
                schedule.add(running)
                alive.append(running)
                made += 1
        if draw.random() < 0.02:
            schedule.update(schedule.newest + 1)
        if draw.random() < 0.02 and alive:
            schedule.remove(alive.pop(draw.randrange(len(alive))))
        for work in schedule.plan():
            caches.follow(work)
            assert sum(1 for _ in schedule) <= SLOTS
            for read in work.reads:
                assert not schedule.has_read(read) or read.running.sampled
            for running in work.decode:
                schedule.has_decoded(running)
                running.tokens.append(draw.randrange(1000))
                versions[running.request.id].append(work.version)
                if running.sampled == ends[running.request.id]:
                    schedule.remove(running)
                    alive.remove(running)
                    told = versions[running.request.id]
                    assert len(told) == ends[running.request.id]
                    assert told == sorted(told) and len(set(told)) <= MOST_REFILLS + 1
                    assert [told[at] for at in range(0, len(told), CHUNK)] == running.chunks
                    assert all(told[at] == told[at - at % CHUNK] for at in range(len(told)))
        for version in schedule.versions:
            if version != schedule.newest and not schedule.uses(version):
                schedule.retire(version)
    while schedule.busy:  # nothing waits for ever
        for work in schedule.plan():
            caches.follow(work)
            for read in work.reads:
                schedule.has_read(read)
            for running in work.decode:
                schedule.has_decoded(running)
                running.tokens.append(0)
                if running.sampled == ends[running.request.id]:
                    schedule.remove(running)


def test_decoding_goes_on_while_a_long_prompt_is_read() -> None:
    schedule = Schedule(2, 0)
    short = Running(Request("short", (1, 2), bytes(32)), 0, [1, 2], 2)
    long = Running(Request("long", (1,) * 5000, bytes(32)), 0, [1] * 5000, 5000)
    schedule.add(short)
    schedule.add(long)
    steps = decoded = 0
    while not long.decodes:
        steps += 1
        for work in schedule.plan():
            for read in work.reads:
                schedule.has_read(read)
            for running in work.decode:
                schedule.has_decoded(running)
                running.tokens.append(0)
                decoded += running is short
    assert steps == 4999 // PIECE + 1
    assert decoded == steps - 1


def test_a_version_in_use_is_not_forgotten() -> None:
    schedule = Schedule(2, 0)
    running = Running(Request("a", (1, 2), bytes(32)), 0, [1, 2], 2, begun=True, refills=MOST_REFILLS)
    schedule.add(running)
    schedule.plan()
    schedule.update(1)
    with pytest.raises(ValueError):
        schedule.retire(0)
    with pytest.raises(ValueError):
        schedule.retire(1)
    schedule.remove(running)
    schedule.retire(0)
    assert schedule.versions == (1,)
