"""A joiner behind a slow line, in virtual time."""

from datetime import timedelta
from pathlib import Path

import pytest

from protocol.testing import Conditions, Swarm
from protocol.units import Bytes
from tests.diloco.member.fleet import tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd

LINE = 5_000_000 // 8
"""Bytes per second of the joiner's line, each way."""

ROUNDS = 26


@pytest.mark.failure_mode(13)
def test_a_joiner_at_5_megabits_whose_state_takes_three_rounds_joins_and_others_lose_nothing(
    tmp_path: Path,
) -> None:
    genesis = tiny_genesis(
        rounds=ROUNDS,
        model={"hidden": 128, "layers": 5, "heads": 4, "kv_heads": 2, "intermediate": 512},
        round={"inner_steps": 6, "chunk": 65536, "checkpoint_every": 4},
        deadline={"attempt": "15 s", "progress": "15 s"},
    )
    with Swarm(seed=3, run=None) as swarm:
        crowd = Crowd(swarm, tmp_path, genesis)
        donors = list(crowd.seats)
        names = {donor.host.peer_id for donor in donors}

        async def scene() -> None:
            await crowd.until(lambda: 10 in donors[0].digests(), timedelta(minutes=5))
            joiner = crowd.join()
            for donor in donors:
                swarm.network.towards(donor.host, joiner.host, Conditions(intake=Bytes(LINE)))
                swarm.network.towards(joiner.host, donor.host, Conditions(bandwidth=Bytes(LINE)))
            began = donors[0].member.state.round
            await crowd.until(lambda: bool(joiner.of("state.downloaded")), timedelta(minutes=10))
            (download,) = joiner.of("state.downloaded")
            assert donors[0].member.state.round - began >= 3, "it took three rounds"
            assert download["bytes"] >= 10_000_000 and set(download["holders"]) <= names
            await crowd.finished(timedelta(minutes=30))
            there = {event["round"]: event for event in donors[0].of("apply")}
            for event in joiner.of("apply"):
                for name in ("digest", "parameters", "momentum"):
                    assert event[name] == there[event["round"]][name], "what was served did not change"
            commits = donors[0].of("commit")
            assert len(commits) == ROUNDS
            assert all(names <= set(commit["roster"]) for commit in commits), "the others lost nothing"
            assert any(joiner.host.peer_id in commit["roster"] for commit in commits), "it contributed"
            everything = [donor.of("train.end") for donor in donors]
            assert all(len(ends) == ROUNDS for ends in everything)

        swarm.run(scene())
    crowd.check_equal()
