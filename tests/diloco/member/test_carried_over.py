"""What an owner has signed is not reduced again: within an attempt when it dies, and in the next attempt (rule 7)."""

from pathlib import Path

import pytest

from diloco.member import exchange
from diloco.reduce.messages import Frame, Header
from diloco.reduce.reduction import Reduction
from diloco.rounds import planning
from diloco.rounds.events import Event, Reduced
from diloco.rounds.roster import included
from tests.diloco.member.fleet import Post, fleet, heavy_tailed, tiny_genesis


def forget_the_reduce(post: Post) -> None:
    """It leads attempt 0, reduces everything, and never says so: the attempt's timer ends it."""
    hand_on = post.member.post

    def lossy(event: Event) -> None:
        if not (isinstance(event, Reduced) and event.attempt == 0):
            hand_on(event)

    post.member._exchange._post = lossy


async def test_chunks_signed_in_one_attempt_are_named_again_in_the_next(tmp_path: Path) -> None:
    """In attempt 0 one contributor reaches two owners of four. Reducing anew would take it in everywhere."""
    genesis = tiny_genesis(rounds=1, deadline={"attempt": "2 s", "progress": "500 ms"})
    async with fleet(tmp_path, 4, heavy_tailed, genesis, begin=False) as crowd:
        rules = crowd.posts[0].member.setting.rules
        start = crowd.begin(lambda value: planning.leaders(rules, value)[0] == crowd.posts[0].peer)
        first, second = (crowd.by(peer) for peer in planning.leaders(rules, start)[:2])
        late = next(post for post in crowd.posts if post not in (first, second))
        far = next(post for post in crowd.posts if post not in (first, second, late))
        forget_the_reduce(first)
        crowd.cut = lambda a, b: {a, b} == {late, far}

        def heal() -> None:
            crowd.cut = lambda a, b: False

        second.on("reduce.begin", heal, attempt=1)
        await crowd.all_finished()
        crowd.check_equal()
        (certified,) = crowd.chain()[1:]
        assert certified.attempt == 1
        value = certified.value
        assert len(value.roster) == 4
        recalled = [event for post in crowd.posts for event in post.of("reduce.recalled")]
        assert {event["attempt"] for event in recalled} == {1}
        position = [entry.peer for entry in value.roster].index(late.peer)
        inside = [included(chunk, position) for chunk in value.chunks]
        owned = {chunk for chunk, owner in enumerate(owners_in(far, 0)) if owner == far.peer}
        assert owned == {chunk for chunk, is_in in enumerate(inside) if not is_in}


def owners_in(post: Post, attempt: int) -> tuple[str, ...]:
    """The partition, which event logs give as runs in the order of the roster."""
    event = next(event for event in post.of("reduce.begin") if event["attempt"] == attempt)
    return tuple(peer for peer in event["roster"] for _ in range(event["owned"].get(peer, 0)))


async def test_another_roster_takes_nothing_from_an_attempt_before(tmp_path: Path) -> None:
    """The leader of attempt 0 dies with every chunk reduced: without its contribution all chunks are others."""
    genesis = tiny_genesis(rounds=1, deadline={"attempt": "2 s", "silence": "1 s"})
    async with fleet(tmp_path, 4, heavy_tailed, genesis, begin=False) as crowd:
        rules = crowd.posts[0].member.setting.rules
        start = crowd.begin(lambda value: planning.leaders(rules, value)[0] != value.tie_breaker)
        leader = crowd.by(planning.leaders(rules, start)[0])
        leader.on("reduce.end", leader.die, attempt=0)
        await crowd.all_finished()
        crowd.check_equal()
        value = crowd.chain()[1].value
        assert leader.peer not in {entry.peer for entry in value.roster}
        assert not [event for post in crowd.posts for event in post.of("reduce.recalled")]


@pytest.mark.failure_mode(38)
async def test_an_owner_that_dies_having_given_chunks_to_some_leaves_equal_bytes_with_its_part_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reduced again, its chunks would have other bytes: its own contribution is gone with it."""
    taken: dict[int, bytes] = {}
    victim: Post | None = None

    class Watched(Reduction):
        def _take(self, frame: Frame, header: Header, signer: str = "") -> None:
            super()._take(frame, header, signer)
            if victim is not None and signer == victim.peer and not victim.killed:
                taken[frame.chunk] = header.digest
                victim.die()

    monkeypatch.setattr(exchange, "Reduction", Watched)
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=1), begin=False) as crowd:
        rules = crowd.posts[0].member.setting.rules
        start = crowd.begin()
        leader = planning.leaders(rules, start)[0]
        victim = next(post for post in crowd.posts if post.peer not in (leader, start.tie_breaker))
        await crowd.until(lambda: victim is not None and victim.killed)
        await crowd.all_finished()
        crowd.check_equal()
        (certified,) = crowd.chain()[1:]
        value = certified.value
        assert certified.attempt == 0
        position = [entry.peer for entry in value.roster].index(victim.peer)
        ((chunk, digest),) = taken.items()
        assert value.chunks[chunk].digest == digest and included(value.chunks[chunk], position)
        assert not all(included(entry, position) for entry in value.chunks), (
            "what it took along is reduced anew"
        )
        stored = {b"".join(post.member._holding.store.read(value)) for post in crowd.living()}
        assert len(stored) == 1, "all survivors hold the same bytes"
