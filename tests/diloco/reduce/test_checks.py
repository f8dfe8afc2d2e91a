"""What an owner checks of a contribution, and a voter of a reduced chunk."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from blake3 import blake3

from diloco.aggregate import Aggregation, reduce_chunk
from diloco.codec import codec
from diloco.layout import Grid
from diloco.reduce.checks import check_contribution, check_reduced
from diloco.reduce.contribution import Frozen, freeze
from diloco.reduce.messages import Frame
from diloco.rounds.roster import Plan, bitmap
from diloco.rounds.statements import Ready
from diloco.rounds.values import Contributor, ReducedChunk
from protocol.errors import NodeError

GRID, INT8 = Grid(1000, 256), codec("int8")


def update(seed: int, scale: float = 1e-3) -> np.ndarray:
    return (np.random.default_rng(seed).standard_t(3, 1000) * scale).astype(np.float32)


def frozen(seed: int, scale: float = 1e-3) -> Frozen:
    return freeze(update(seed, scale), GRID, INT8, tokens=8, samples=1)


def check(frame: Frame, of: Frozen, norm: float | None = None) -> None:
    part = GRID.slice(frame.chunk)
    wanted = of.facts.norms[frame.chunk] if norm is None else norm
    check_contribution(frame, of.facts.commitment, wanted, GRID.count, INT8, part.stop - part.start)


def test_every_honest_chunk_passes() -> None:
    mine = frozen(1)
    for chunk in range(GRID.count):
        check(mine.frame(chunk), mine)


LIES: dict[str, Callable[[Frozen], Frame]] = {
    "another member's chunk": lambda mine: frozen(2).frame(1),
    "another chunk of its own": lambda mine: replace(mine.frame(1), data=mine.chunks[2]),
    "another place": lambda mine: replace(mine.frame(1), chunk=2),
    "no proof": lambda mine: replace(mine.frame(1), proof=()),
    "cut short": lambda mine: replace(mine.frame(1), data=mine.chunks[1][:-1]),
    "nothing": lambda mine: replace(mine.frame(1), data=b""),
}


@pytest.mark.failure_mode(27)
@pytest.mark.parametrize("lie", LIES)
def test_a_chunk_that_is_not_the_committed_one_is_refused(lie: str) -> None:
    mine = frozen(1)
    with pytest.raises(NodeError):
        check(LIES[lie](mine), mine)


@pytest.mark.failure_mode(36)
def test_a_chunk_with_another_norm_than_reported_is_refused() -> None:
    mine = frozen(1)
    with pytest.raises(NodeError, match="squared norm"):
        check(mine.frame(1), mine, norm=mine.facts.norms[1] / 1e6)


@pytest.mark.failure_mode(27)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_what_is_not_finite_or_absurd_is_never_frozen(value: float) -> None:
    values = update(1)
    values[777] = value
    with pytest.raises(NodeError):
        freeze(values, GRID, INT8, tokens=8, samples=1)


def plan(*members: Frozen) -> Plan:
    roster = tuple(Contributor(peer=f"p{i}", weight=8 + i, tokens=8, samples=1) for i in range(len(members)))
    readys = {
        f"p{i}": Ready(epoch=0, round=0, attempt=0, base=b"", norms=member.facts.norms)
        for i, member in enumerate(members)
    }
    return Plan(b"", roster, ("p0",) * GRID.count, readys)


@pytest.mark.parametrize("seed", range(20))
def test_every_honest_mean_is_within_the_bound_of_its_contributions(seed: int) -> None:
    same = [frozen(seed)] * 3  # nothing cancels: the bound is as tight as it gets
    for members in (same, [frozen(3 * seed + i, 10.0 ** -(i + 1)) for i in range(3)]):
        for chunk in range(GRID.count):
            part = GRID.slice(chunk)
            size = part.stop - part.start
            data = reduce_chunk(INT8, [m.chunks[chunk] for m in members], [8, 9, 10], size)
            entry = ReducedChunk(digest=blake3(data).digest(), included=bitmap([0, 1, 2], 3))
            check_reduced(data, entry, chunk, plan(*members), INT8, size)


@pytest.mark.failure_mode(37)
def test_a_mean_that_is_longer_than_its_contributions_is_refused() -> None:
    mine = frozen(1)
    data = INT8.encode(INT8.decode(mine.chunks[0], 256) * np.float32(1.2))
    entry = ReducedChunk(digest=blake3(data).digest(), included=b"\1")
    with pytest.raises(NodeError, match="norm"):
        check_reduced(data, entry, 0, plan(mine), INT8, 256)
    with pytest.raises(NodeError, match="names no contributor"):
        check_reduced(data, replace(entry, included=b"\0"), 0, plan(mine), INT8, 256)
    with pytest.raises(NodeError, match="hash"):
        check_reduced(mine.chunks[0], entry, 0, plan(mine), INT8, 256)


@pytest.mark.parametrize("how", ["mean", "trimmed_mean", "median"])
def test_voters_check_against_the_clipped_norms(how: Aggregation) -> None:
    """An owner that leaves out the clip factor makes a chunk that no clipped contributions can have made."""
    members = [frozen(1)] * 5
    made = plan(*members)
    clipped = replace(made, roster=tuple(replace(entry, clip=0.25) for entry in made.roster))
    chunks, weights = [m.chunks[0] for m in members], [entry.weight for entry in made.roster]
    for clips, refused in (([0.25] * 5, False), ([1.0] * 5, True)):
        data = reduce_chunk(INT8, chunks, weights, 256, clips=clips, how=how)
        entry = ReducedChunk(digest=blake3(data).digest(), included=bitmap(range(5), 5))
        check_reduced(data, entry, 0, made, INT8, 256, how)
        if refused:
            with pytest.raises(NodeError, match="norm"):
                check_reduced(data, entry, 0, clipped, INT8, 256, how)
        else:
            check_reduced(data, entry, 0, clipped, INT8, 256, how)
