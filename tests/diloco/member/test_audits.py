"""An owner that lies about its chunks, or does not show its work: found by real members over real gRPC."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

from diloco.codec import codec
from diloco.reduce.evidence import judge, statement_digest
from diloco.reduce.gathering import Gathering
from diloco.reduce.messages import Accusation, Exhibit, Frame, PullExhibits
from diloco.reduce.reduction import Reduction
from diloco.rounds import planning
from protocol.envelope import seal
from protocol.rpc import Context
from tests.diloco.member.fleet import Fleet, Post, fleet, heavy_tailed, tiny_genesis
from tests.diloco.member.test_hostile_peers import answer_with
from tests.diloco.member.test_refusals import LIES

INT8 = codec("int8")
FOUND_WITHIN = 3
"""Rounds after a lie until its owner is struck off: docs/rounds.md, audits."""


def one_step_up(data: bytes, size: int) -> bytes:
    """The same chunk with every level one higher, as far as there is room."""
    border = 4 * -(-size // 256)
    levels = np.frombuffer(data, np.int8)[border:]
    return data[:border] + np.where(levels < 127, levels + 1, levels).astype(np.int8).tobytes()


def lie_from(monkeypatch: pytest.MonkeyPatch, liar: Post, first: int) -> None:
    aggregate = Gathering._aggregate

    def lying(self: Gathering, held: dict[int, bytes], size: int) -> bytes:
        data = aggregate(self, held, size)
        lies = self._setting.me == liar.peer and self._attempt.round >= first
        return one_step_up(data, size) if lies else data

    monkeypatch.setattr(Gathering, "_aggregate", lying)


def banned_in(crowd: Fleet, peer: str) -> int:
    """The round whose value strikes a peer off."""
    return next(c.value.round for c in crowd.chain() if peer in c.value.banned)


@pytest.mark.failure_mode(37)
async def test_an_owner_that_adds_one_quantization_step_everywhere_is_found_and_struck_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=8), begin=False, step=0.05) as crowd:
        liar = crowd.posts[1]
        honest = [post for post in crowd.posts if post is not liar]
        lie_from(monkeypatch, liar, first=1)
        crowd.begin()
        await crowd.until(lambda: liar.member.banned.is_set() and all(p.of("run.finished") for p in honest))
        crowd.check_equal()
        lied = next(c.value for c in crowd.chain() if c.value.round == 1)
        assert len(lied.roster) == 4, "the lie is within what a voter can see: it got its votes"
        assert 1 < banned_in(crowd, liar.peer) <= 1 + FOUND_WITHIN
        last = crowd.chain()[-1].value
        assert liar.peer not in {*(e.peer for e in last.electorate), *last.members}
        assert {entry.peer for entry in last.roster} == {post.peer for post in honest}
        for post in honest:
            assert {event["accused"] for event in post.of("evidence")} == {liar.peer}
            assert [liar.peer in sentence for sentence in post.member.found_out] == [True]
            assert {event["true"] for event in post.of("audit") if event["peer"] != liar.peer} <= {True}
        # what each of them holds convinces anyone who has the genesis, and shows it to anyone
        witness = honest[0].member._auditing
        (kept,) = (honest[0].folder / "evidence").glob("*/*.bin")
        statement, chunk = kept.stem.split("-")
        shown = list(witness.evidence.read(bytes.fromhex(statement), int(chunk)))
        assert judge(honest[1].member._auditing.court, shown) == liar.peer


async def test_honest_owners_are_audited_and_stay(tmp_path: Path) -> None:
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=5)) as crowd:
        await crowd.all_finished()
        audits = [event for post in crowd.posts for event in post.of("audit")]
        assert {event["true"] for event in audits} == {True}
        for number in range(3):
            assert {e["peer"] for e in audits if e["round"] == number} == {p.peer for p in crowd.posts}, (
                "each owner is checked in each round"
            )
        assert not [event for post in crowd.posts for event in post.of("audit.unshown")]
        assert not crowd.chain()[-1].value.unproven
        kept = {int(path.name) for path in (crowd.posts[0].folder / "shown").iterdir()}
        assert kept <= {3, 4} and kept, "the contributions of two rounds are kept"


async def nothing(message: PullExhibits, context: Context) -> AsyncIterator[Exhibit]:
    if message.chunk < 0:
        yield Exhibit()


async def too_slowly(message: PullExhibits, context: Context) -> AsyncIterator[Exhibit]:
    while True:
        yield Exhibit()
        await asyncio.sleep(0.1)


@pytest.mark.failure_mode(37)
@pytest.mark.parametrize("show", [nothing, too_slowly])
async def test_an_owner_that_does_not_show_its_work_owns_nothing_for_a_while_and_stays_a_voter(
    tmp_path: Path, show: Any
) -> None:
    genesis = tiny_genesis(rounds=8, deadline={"attempt": "1 s", "attempt_max": "1 s"})
    async with fleet(tmp_path, 4, heavy_tailed, genesis, begin=False, step=0.25) as crowd:
        shy, witness = crowd.posts[1], crowd.posts[0]
        answer_with(shy, show, "reduce.pull-exhibits")
        owned: dict[int, dict[str, int]] = {}

        def note(kind: str, fields: dict[str, Any]) -> None:
            if kind == "reduce.begin":
                owned[fields["round"]] = fields["owned"]

        witness.hooks.append(note)
        crowd.begin()
        await crowd.all_finished()
        crowd.check_equal()
        values = {c.value.round: c.value for c in crowd.chain()}
        first = min(r for r, value in values.items() if value.unproven)
        assert {entry.peer for entry in values[first].unproven} == {shy.peer}
        assert first <= FOUND_WITHIN + 2 and owned[first][shy.peer] > 0
        assert all(shy.peer not in owned[r] for r in range(first + 1, 8))
        assert shy.peer in {e.peer for e in values[7].electorate}
        assert shy.peer in {entry.peer for entry in values[7].roster}
        assert not [e for post in crowd.posts for e in post.of("evidence")]


@pytest.mark.failure_mode(29)
async def test_an_accusation_is_worth_what_it_shows(tmp_path: Path) -> None:
    """One that accuses with nothing, one with true statements: nobody believes it, and it costs the accused nothing."""
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=6), begin=False) as crowd:
        accuser, accused = crowd.posts[1], crowd.posts[2]
        others = [post for post in crowd.posts if post is not accuser]
        crowd.begin()
        await crowd.until(lambda: accuser.member._auditing._signatures.get(1))
        auditing = accuser.member._auditing
        signed = next(s for s in auditing._signatures[1].values() if s.signer == accused.peer)
        statement = statement_digest(signed.frame.header)
        question = PullExhibits(statement=statement, chunk=signed.frame.chunk)
        shown = [
            e
            async for e in accuser.endpoint.stream(
                accused.peer, question, progress=crowd.genesis.sections.deadline.progress
            )
        ]
        assert judge(auditing.court, shown) is None
        auditing.evidence.write(1, statement, signed.frame.chunk, shown)
        for digest in (statement, b"\0" * 32):
            word = Accusation(accused=accused.peer, statement=digest, chunk=signed.frame.chunk)
            sealed = seal(accuser.identity, crowd.genesis.run_id, word)
            for post in others:
                await accuser.endpoint.post(post.peer, sealed)
            await crowd.until(lambda: all(p.of("accusation.refused") for p in others))
            for post in others:
                post.events = [event for event in post.events if event[0] != "accusation.refused"]
        await crowd.all_finished()
        assert not crowd.chain()[-1].value.banned
        assert not [e for post in crowd.posts for e in post.of("evidence")]


@pytest.mark.failure_mode(36)
async def test_a_contributor_is_struck_off_by_its_own_ready(tmp_path: Path) -> None:
    """It reports a norm of 0.1 for each chunk and sends values of 100: refused, shown to all, and out."""
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=5), begin=False) as crowd:
        liar = crowd.posts[1]
        honest = [post for post in crowd.posts if post is not liar]
        report = liar.member._training._finished
        liar.member._training._finished = lambda lease, frozen: report(
            lease, LIES["a norm of 0.1 and values of 100"](frozen)
        )
        crowd.begin()
        await crowd.until(lambda: liar.member.banned.is_set() and all(p.of("run.finished") for p in honest))
        crowd.check_equal()
        assert banned_in(crowd, liar.peer) <= 2
        for post in honest:
            (evidence,) = post.of("evidence")
            assert (evidence["accused"], evidence["what"]) == (liar.peer, "false-contribution")
        assert {entry.peer for entry in crowd.chain()[-1].value.roster} == {post.peer for post in honest}


@pytest.mark.failure_mode(38)
async def test_an_owner_that_signs_two_versions_of_a_chunk_loses_its_seat_and_all_hold_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that asks gets bytes of its own, one step apart, well within what a voter can check."""
    asked = [0]
    serve = Reduction.serve

    async def twofold(self: Reduction, chunks: tuple[int, ...], *, wait: bool) -> AsyncIterator[Frame]:
        asked[0] += self._setting.me == liar.peer
        other = asked[0] % 2 == 0
        async for frame in serve(self, chunks, wait=wait):
            if self._setting.me == liar.peer and other and self.attempt.round == 1:
                part = self._setting.grid.slice(frame.chunk)
                data = one_step_up(frame.data, part.stop - part.start)
                header = replace(self._headers[frame.chunk], digest=blake3(data).digest())
                frame = replace(frame, data=data, header=self._setting.seal(header).raw)
            yield frame

    monkeypatch.setattr(Reduction, "serve", twofold)
    async with fleet(tmp_path, 4, heavy_tailed, tiny_genesis(rounds=5), begin=False) as crowd:
        liar = crowd.posts[1]
        rules = liar.member.setting.rules
        crowd.begin(lambda value: planning.leaders(rules, value)[0] != liar.peer)
        await crowd.all_finished()
        crowd.check_equal()
        last = crowd.chain()[-1].value
        assert liar.peer in last.unseated and liar.peer not in {e.peer for e in last.electorate}
        kinds = {event["what"] for post in crowd.posts for event in post.of("evidence")}
        assert kinds == {"two-chunks"}
