"""Members whose contributions or links differ much: what becomes of the update and of who reduces it."""

from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diloco.outer_state import OuterState
from diloco.reduce.messages import Header
from diloco.rounds.leases import samples_of
from diloco.rounds.roster import included
from diloco.rounds.values import Value
from protocol.envelope import unseal
from protocol.units import Bytes
from tests.diloco.member.fleet import Post, fleet, tiny_genesis

FIRST_STEP = 0.7 * 1.9  # of the outer step, from a momentum of zero


def one_shouts(number: int, round_number: int, state: OuterState) -> np.ndarray:
    return np.full(state.layout.size, 1.0 if number == 2 else 0.01, np.float32)


async def moved(tmp_path: Path, members: int, aggregation: str) -> np.ndarray:
    genesis = tiny_genesis(rounds=1, round={"aggregation": aggregation})
    async with fleet(tmp_path, members, one_shouts, genesis) as crowd:
        await crowd.all_finished()
        crowd.check_equal()
        (certified,) = crowd.chain()[1:]
        assert len(certified.value.roster) == members
        return crowd.posts[0].paths[0] - crowd.posts[0].paths[1]


@pytest.mark.parametrize(
    ("members", "aggregation", "update"),
    [
        (3, "mean", (2 * 0.01 + 1.0) / 3),  # too few for a usual length
        (4, "mean", (3 * 0.01 + 0.03) / 4),  # clipped at three times the others'
        (4, "median", (3 * 0.01 + 0.03) / 4),  # too few to trim
        (5, "trimmed_mean", 0.01),
        (5, "median", 0.01),
    ],
)
async def test_how_far_one_that_sends_a_hundred_times_as_much_moves_the_others(
    tmp_path: Path, members: int, aggregation: str, update: float
) -> None:
    np.testing.assert_allclose(await moved(tmp_path, members, aggregation), FIRST_STEP * update, rtol=0.01)


def used(post: Post) -> Counter[str]:
    """How many chunks each member has signed in the reduce that runs here."""
    reduction = post.member._holding.reduction
    assert reduction is not None
    verifier = post.endpoint.verifier
    run = post.fleet.genesis.run_id
    headers = [
        unseal(frame.header, run=run, expect=Header, verifier=verifier) for frame in reduction.frames.values()
    ]
    return Counter(header.sender for header in headers)


@pytest.mark.failure_mode(9)
async def test_one_slow_link_of_four_owns_less_and_the_reported_sizes_are_the_used_ones(
    tmp_path: Path,
) -> None:
    genesis = tiny_genesis(
        rounds=3, model={"hidden": 128, "vocab": 2560}, round={"chunk": 4096}, deadline={"attempt": "20 s"}
    )
    reported: dict[tuple[int, int], dict[str, int]] = {}
    signed: dict[tuple[int, int], Counter[str]] = {}

    def compare(post: Post, kind: str, fields: dict[str, Any]) -> None:
        # The leader's reduce always ends; another member may fetch its last chunks to vote before its own does.
        if kind == "reduce.begin":
            which = fields["round"], fields["attempt"]
            assert reported.setdefault(which, fields["owned"]) == fields["owned"]
        if kind == "reduce.end":
            which = fields["round"], fields["attempt"]
            assert signed.setdefault(which, used(post)) == used(post)

    async with fleet(tmp_path, 4, one_shouts, genesis, begin=False, slow={2: Bytes(150_000)}) as crowd:
        slow = crowd.posts[1]
        for post in crowd.posts:
            post.hooks.append(partial(compare, post))
        crowd.begin()
        await crowd.all_finished()
        crowd.check_equal()
    assert signed == {which: reported[which] for which in signed}
    assert {number for number, attempt in signed} == {0, 1, 2}
    first = reported[0, 0]
    chunks = sum(first.values())
    assert max(first.values()) - min(first.values()) <= 1, "nothing is measured before a round"
    for owned in (owned for (number, attempt), owned in reported.items() if number > 0):
        assert owned.get(slow.peer, 0) < chunks / 4 / 2
        assert all(count <= 2 * chunks / 4 for count in owned.values())


async def test_where_a_round_has_a_fixed_time_the_faster_member_is_leased_more(tmp_path: Path) -> None:
    """Speeds of 4, 8 and 16 samples in a round's time; a step has 2."""
    genesis = tiny_genesis(rounds=1000, round={"time_budget": "1 s", "inner_steps": 20})
    async with fleet(tmp_path, 3, one_shouts, genesis, begin=False) as crowd:
        speeds = {post.peer: 4 * 2**i for i, post in enumerate(crowd.posts)}
        for post in crowd.posts:
            post.trainer.most = speeds[post.peer]
        start = crowd.begin()
        assert {samples_of(lease) for lease in start.leases} == {40}

        def fits(value: Value) -> bool:
            leases = {lease.peer: samples_of(lease) for lease in value.leases}
            return leases == {peer: speed * 3 // 2 for peer, speed in speeds.items()}

        await crowd.until(lambda: sum(fits(certified.value) for certified in crowd.chain()) >= 4)
        crowd.check_books()
        values = [certified.value for certified in crowd.chain()]
    for before, after in pairwise(values):
        arrived = {
            entry.peer: entry.samples
            for i, entry in enumerate(after.roster)
            if all(included(chunk, i) for chunk in after.chunks)
        }
        assert all(samples <= speeds[peer] for peer, samples in arrived.items())
        sizes = {lease.peer: lease.size for lease in after.leases}
        assert all(sizes[peer] == samples * 3 // 2 for peer, samples in arrived.items())
        assert after.cursor == before.cursor or not after.returned, "returned ranges are leased first"
    assert any(lease.more for value in values for lease in value.leases)
