"""What would ruin everyone's weights is refused where it arises, and again where it arrives."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diloco import merkle
from diloco.outer_state import OuterState
from diloco.reduce.contribution import Frozen
from diloco.reduce.gathering import Gathering
from diloco.reduce.messages import Frame
from diloco.rounds import planning
from diloco.rounds.partition import partition
from diloco.rounds.roster import included
from tests.diloco.member.fleet import Fleet, Post, fleet, tiny_genesis

POISON = {"NaN": np.float32("nan"), "infinity": np.float32("inf"), "1e30": np.float32(1e30)}


def small(number: int, round_number: int, state: OuterState) -> np.ndarray:
    return np.full(state.layout.size, 0.01, np.float32)


def rosters(crowd: Fleet) -> list[set[str]]:
    return [{entry.peer for entry in certified.value.roster} for certified in crowd.chain()[1:]]


@pytest.mark.failure_mode(27)
@pytest.mark.parametrize("poison", POISON)
async def test_a_poisoned_update_is_refused_at_its_sender(tmp_path: Path, poison: str) -> None:
    def gradient(number: int, round_number: int, state: OuterState) -> np.ndarray:
        values = small(number, round_number, state)
        if (number, round_number) == (2, 1):
            values[values.size // 2] = POISON[poison]
        return values

    async with fleet(tmp_path, 3, gradient, tiny_genesis(rounds=3)) as crowd:
        await crowd.all_finished()
        crowd.check_equal()
        sick = crowd.posts[1]
        (refusal,) = sick.of("train.not-finite")
        assert refusal["round"] == 1 and refusal["reason"]
        everyone = {post.peer for post in crowd.posts}
        assert rosters(crowd) == [everyone, everyone - {sick.peer}, everyone]
        assert np.isfinite(crowd.posts[0].state.params).all()
        crowd.check_books()


@pytest.mark.failure_mode(28)
async def test_a_worker_whose_loss_is_not_finite_sits_one_round_out(tmp_path: Path) -> None:
    async with fleet(tmp_path, 3, small, tiny_genesis(rounds=3), begin=False) as crowd:
        sick = crowd.posts[2]
        sick.trainer.loss = lambda round_number: float("nan") if round_number == 1 else 1.0
        crowd.begin()
        await crowd.all_finished()
        crowd.check_equal()
        (said,) = sick.of("train.not-finite")
        assert said["round"] == 1
        everyone = {post.peer for post in crowd.posts}
        assert rosters(crowd) == [everyone, everyone - {sick.peer}, everyone]
        crowd.check_books()


class Tampering(Frozen):
    """Sends other bytes than it has committed to."""

    def frame(self, chunk: int) -> Frame:
        honest = super().frame(chunk)
        data = bytearray(honest.data)
        data[-1] ^= 1
        return replace(honest, data=bytes(data))


def tampered(frozen: Frozen) -> Frozen:
    return Tampering(frozen.chunks, frozen.leaves, frozen.facts)


def rescaled(frozen: Frozen, scale: float, norm: float) -> Frozen:
    """Commits to chunks with another scale and reports a norm of its choice."""
    chunks = []
    for data in frozen.chunks:
        blocks = -(-len(data) // 260)
        chunks.append(np.full(blocks, scale, "<f4").tobytes() + data[4 * blocks :])
    leaves = tuple(merkle.leaf(index, data) for index, data in enumerate(chunks))
    norms = (norm,) * len(chunks)
    facts = replace(frozen.facts, commitment=merkle.root(leaves), norms=norms)
    return Frozen(tuple(chunks), leaves, facts)


LIES = {
    "bytes that are not the committed ones": tampered,
    "infinite scales": lambda frozen: rescaled(frozen, float("inf"), 1.0),
    "NaN scales": lambda frozen: rescaled(frozen, float("nan"), 1.0),
    "scales of 1e30": lambda frozen: rescaled(frozen, 1e30, 1.0),
    "a norm of 0.1 and values of 100": lambda frozen: rescaled(frozen, 100 / 127, 0.01),
}


@pytest.mark.failure_mode(27)
@pytest.mark.failure_mode(36)
@pytest.mark.parametrize("lie", LIES)
async def test_a_contribution_that_lies_is_refused_by_its_owners(tmp_path: Path, lie: str) -> None:
    def bypass(post: Post) -> None:
        """Its own check is skipped: what it freezes is replaced before it is promised."""
        if post.number != 2:
            return
        report = post.member._training._finished
        post.member._training._finished = lambda lease, frozen: report(lease, LIES[lie](frozen))

    genesis = tiny_genesis(rounds=1, deadline={"progress": "500 ms"})
    async with fleet(tmp_path, 4, small, genesis, begin=False) as crowd:
        liar = crowd.posts[1]
        bypass(liar)
        rules = liar.member.setting.rules
        crowd.begin(lambda value: planning.leaders(rules, value)[0] != liar.peer)
        await crowd.all_finished()
        crowd.check_equal()
        refusals = [e for post in crowd.posts if post is not liar for e in post.of("chunk.refused")]
        assert any(event["peer"] == liar.peer and event["reason"] for event in refusals)
        (certified,) = crowd.chain()[1:]
        value = certified.value
        assert certified.attempt == 0, "the round commits without it, at once"
        position = [entry.peer for entry in value.roster].index(liar.peer)
        owners = partition(len(value.chunks), [entry.peer for entry in value.roster])
        for owner, chunk in zip(owners, value.chunks, strict=True):
            assert owner == liar.peer or not included(chunk, position)
        moved = crowd.posts[0].paths[0] - crowd.posts[0].paths[1]
        np.testing.assert_allclose(moved, 0.7 * 0.01 * 1.9, rtol=0.02)


@pytest.mark.failure_mode(27)
@pytest.mark.parametrize("leads", [False, True], ids=["follows", "leads"])
async def test_an_owner_that_lies_about_the_mean_gets_no_votes(
    tmp_path: Path, leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean = Gathering._aggregate
    async with fleet(
        tmp_path, 4, small, tiny_genesis(rounds=2, deadline={"attempt": "2 s"}), begin=False
    ) as crowd:
        liar = crowd.posts[1]

        def lying(self: Gathering, held: dict[int, bytes], size: int) -> bytes:
            data = mean(self, held, size)
            if self._setting.me != liar.peer:
                return data
            codec = self._setting.codec
            return codec.encode(codec.decode(data, size) * np.float32(100))

        monkeypatch.setattr(Gathering, "_aggregate", lying)
        rules = liar.member.setting.rules
        crowd.begin(lambda value: (planning.leaders(rules, value)[0] == liar.peer) == leads)
        await crowd.all_finished()
        crowd.check_equal()
        moved = crowd.posts[0].paths[0] - crowd.posts[0].paths[2]
        np.testing.assert_allclose(moved, 0.7 * 0.01 * (1.9 + 1 + 0.9 * 1.9), rtol=0.02)
        assert (crowd.chain()[1].attempt == 0) != leads
