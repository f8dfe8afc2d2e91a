"""An admitted peer that says anything at all, as often and as slowly as it likes: nobody stops, and rounds go on."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diloco.member.messages import AskLedger, Goodbye, Heartbeat
from diloco.outer_state import OuterState
from diloco.reduce.messages import Frame, PullContribution, PullNamed, PullReduced
from diloco.rounds import founding
from diloco.rounds.records import Order, Reset
from diloco.rounds.statements import Close, Move, Pass, Proposal, Ready, Reassign, Vote
from diloco.rounds.values import Decided
from protocol.envelope import seal
from protocol.errors import NodeError
from protocol.messages import encode
from protocol.rpc import Context
from protocol.rpc.channel import METHOD_PREFIX
from tests.diloco.member.fleet import OPERATOR, Fleet, Post, fleet, tiny_genesis

MOST = 2**64 - 1
NUMBERS = (0, 1, 7, 2**62, 2**63, MOST)


def small(number: int, round_number: int, state: OuterState) -> np.ndarray:
    return np.full(state.layout.size, 0.01, np.float32)


def nonsense(epoch: int, round_number: int, attempt: int, base: bytes) -> Iterator[Any]:
    """Every kind of statement about a round, with the worst that its fields take."""
    place = {"epoch": epoch, "round": round_number, "attempt": attempt}
    yield Ready(**place, base=b"")
    yield Ready(
        **place,
        base=base,
        tokens=MOST,
        samples=MOST,
        commitment=b"c" * 32,
        norms=(float("nan"),) * 9,
        boot=b"b" * 16,
    )
    yield Ready(
        **place, base=base, tokens=5, samples=5, commitment=b"c" * 32, norms=(1e308,) * 100, voted_attempt=MOST,
        voted_value=b"garbage", voted_close=b"g", admission=b"a", orders=(b"o",) * 16, leaving=True, lost_record=True,
    )  # fmt: skip
    yield Proposal(**place, readys=(b"r",) * 4)
    yield Close(**place, value=b"garbage")
    yield Vote(**place, value=b"v" * 32)
    yield Pass(**place, reason="\x1b[2J")
    yield Reassign(**place, ownership=MOST, moves=(Move(chunk=MOST, owner=""), Move(chunk=0, owner="x")))


def everywhere(post: Post) -> Iterator[Any]:
    """Nonsense about this round, rounds long decided, and rounds that never come; and some about no round."""
    state = post.member.state
    assert state is not None
    places = {(state.epoch, state.round), (0, 0), (0, MOST), (MOST, 0), (MOST, MOST)}
    for epoch, round_number in sorted(places):
        for attempt in NUMBERS:
            yield from nonsense(epoch, round_number, attempt, state.base or b"")
    yield Decided(value=b"", attempt=MOST, votes=(b"x",) * 64)
    yield Decided(value=b"garbage", start=b"garbage")
    yield Order(number=MOST, kind="ban", peer=post.peer)


async def say(liar: Post, victims: list[Post], words: Iterator[Any]) -> None:
    for word in words:
        sealed = seal(liar.identity, liar.fleet.genesis.run_id, word)
        for victim in victims:
            try:
                await liar.endpoint.post(victim.peer, sealed)
            except NodeError:
                continue


async def begin_with_a_liar(crowd: Fleet, *, seated: bool = False) -> tuple[Post, list[Post]]:
    """The last member joins as all do; from then on only its endpoint lives, for the test to speak with."""
    honest = list(crowd.posts)
    liar = await crowd.add(seated=seated)
    crowd.begin()
    await crowd.until(lambda: honest[0].member.ledger.get(0) is not None)
    assert liar.task is not None
    liar.task.cancel()
    liar.task = None
    return liar, honest


async def two_more_rounds(crowd: Fleet, honest: list[Post]) -> None:
    wanted = honest[0].round + 2
    await crowd.until(lambda: all(post.round >= wanted for post in honest))
    assert not [event for post in honest for event in (*post.of("task.failed"), *post.of("abstain"))]


@pytest.mark.parametrize("seated", [False, True], ids=["contributor", "voter"])
async def test_statements_without_sense_stop_nobody(tmp_path: Path, seated: bool) -> None:
    async with fleet(tmp_path, 2, small, tiny_genesis(rounds=1000), begin=False) as crowd:
        liar, honest = await begin_with_a_liar(crowd, seated=seated)
        await say(liar, honest, everywhere(honest[0]))
        await two_more_rounds(crowd, honest)


async def test_statements_about_impossible_rounds_of_an_older_epoch_stop_nobody(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2, small, tiny_genesis(rounds=1000), begin=False) as crowd:
        liar, honest = await begin_with_a_liar(crowd)
        await crowd.until(lambda: honest[0].member.state.base is not None)  # type: ignore[union-attr]
        first = honest[0].member
        state = first.state
        assert state is not None and state.base is not None
        peers = {post.peer: True for post in honest}
        value = founding.make_reset(state.rules, state.value, state.tip.digest, state.base, peers, b"z" * 32)
        reset = Reset(value=encode(value), reason="a test")
        first.give_reset(seal(OPERATOR, crowd.genesis.run_id, reset).raw)
        await crowd.until(lambda: all(post.member.state.epoch == 1 for post in honest))  # type: ignore[union-attr]
        await say(liar, honest, (word for n in NUMBERS for word in nonsense(0, n, 0, b"")))
        await two_more_rounds(crowd, honest)


async def test_questions_without_sense_are_answered_or_refused(
    tmp_path: Path, own_log: pytest.LogCaptureFixture
) -> None:
    async with fleet(tmp_path, 2, small, tiny_genesis(rounds=1000), begin=False) as crowd:
        liar, honest = await begin_with_a_liar(crowd)
        victim = honest[0]
        now = victim.round
        questions = (
            AskLedger(round=2**63 - 1, limit=MOST, epoch=MOST),
            AskLedger(round=-(2**63)),
            PullNamed(epoch=MOST, round=MOST, chunks=(MOST,), digests=(b"d" * 32,)),
            PullNamed(epoch=0, round=0, chunks=(MOST,) * 99, digests=(b"",) * 99),
            PullNamed(epoch=0, round=0, chunks=(1, 2), digests=()),
            PullContribution(epoch=0, round=now, chunks=(MOST,)),
            PullReduced(epoch=0, round=now, attempt=0, chunks=(MOST,), wait=False),
            PullReduced(epoch=MOST, round=MOST, attempt=MOST, chunks=(), wait=False),
        )
        for question in questions:
            try:
                async for _ in liar.endpoint.stream(victim.peer, question, progress=timedelta(seconds=5)):
                    pass
            except NodeError:
                continue
        await liar.endpoint.send(
            victim.peer, Heartbeat(epoch=MOST, round=2**63 - 1, attempt=MOST, loss=float("nan"))
        )
        await liar.endpoint.send(victim.peer, Goodbye(reason="\x1b[2J"))
        await two_more_rounds(crowd, honest)
    assert "handler" not in own_log.text  # no handler failed


class Flooding:
    """Handlers of a peer that answers without end, or as slowly as it may."""

    def __init__(self) -> None:
        self.sent = 0

    async def on_pull_named(self, message: PullNamed, context: Context) -> AsyncIterator[Frame]:
        while True:
            yield Frame(chunk=self.sent, data=b"nothing that was asked for")
            self.sent += 1
            await asyncio.sleep(0.01)


def answer_with(post: Post, handler: Any, name: str) -> None:
    """Replace a handler at an endpoint."""
    del post.endpoint.desk._routes[name]
    post.endpoint._router._methods.pop(METHOD_PREFIX + name, None)
    post.endpoint.handle(handler)


async def test_a_peer_that_sends_without_end_is_left(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2, small, tiny_genesis(rounds=1000), begin=False) as crowd:
        liar, honest = await begin_with_a_liar(crowd)
        answer_with(liar, Flooding().on_pull_named, "reduce.pull-named")
        await crowd.until(lambda: honest[0].member.ledger.get(0) is not None)
        decided = honest[0].member.ledger.get(0)
        assert decided is not None
        holding = honest[1].member._holding
        data: dict[int, bytes] = {}
        async with asyncio.timeout(60):
            await holding._ask(liar.peer, decided.value, list(range(len(decided.value.chunks))), data)
        assert not data


async def test_a_contributor_that_sends_as_slowly_as_it_may_is_left_out(tmp_path: Path) -> None:
    """Each of its chunks comes just within the progress deadline: all of them would take longer than any attempt."""
    genesis = tiny_genesis(rounds=1000, deadline={"progress": "1 s", "attempt": "2 s", "attempt_max": "4 s"})
    async with fleet(tmp_path, 2, small, genesis, begin=False) as crowd:
        honest = list(crowd.posts)
        slow = await crowd.add(seated=False)
        pulled = slow.member._holding.on_pull_contribution

        async def on_pull_contribution(message: PullContribution, context: Context) -> AsyncIterator[Frame]:
            async for frame in pulled(message, context):
                await asyncio.sleep(0.8)
                yield frame

        answer_with(slow, on_pull_contribution, "reduce.pull-contribution")
        crowd.begin()
        await crowd.until(lambda: all(post.round >= 3 for post in honest))
        lost = [event for post in honest for event in post.of("contributor.lost")]
        assert {event["peer"] for event in lost} == {slow.peer}
