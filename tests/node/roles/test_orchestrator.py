"""A trainer's orchestrator over real connections: uploads, files, verdicts, bans."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from diloco.architecture import layout_of
from node.roles.files import fetch_file
from node.roles.orchestrator import OrchestratorRole
from node.roles.publishing import PolicyPublisher
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.rpc import Context, Endpoint
from protocol.testing import introduce
from protocol.testing.local import everybody
from protocol.tls import make_certificate
from protocol.trust import Trust
from protocol.units import Digest, RunId
from rl.messages import (
    Abandon,
    AskFile,
    AskReceipt,
    AskWork,
    Draw,
    Finding,
    PutRollouts,
    Receipt,
    Report,
    Verdict,
    WorkLease,
)
from rl.rollouts.files import load, write
from rl.rollouts.limits import Limits
from rl.rollouts.signing import Signed
from rl.validation.draw import Shares
from tests.node.roles.test_policies import MODEL
from tests.rl.orchestration.bench import NOTHING_HIDDEN, RUN, Bench, made
from tests.rl.rollouts.making import ANA, BEN, TOM

JUDGE, OTHER_JUDGE = Identity.ephemeral(b"j" * 32), Identity.ephemeral(b"o" * 32)


def endpoint(identity: Identity) -> Endpoint:
    return Endpoint(
        identity, make_certificate(identity.peer_id), Trust(), run=RunId(RUN), boot=identity.peer_id[-16:].encode(),
        audience=everybody,
    )  # fmt: skip


class World:
    """A trainer, a worker and a validator, each with its own connections."""

    def __init__(
        self, folder: Path, shares: Shares = NOTHING_HIDDEN, judges: Sequence[Identity] = (JUDGE,)
    ) -> None:
        self.trainer, self.worker = map(endpoint, (TOM, ANA))
        self.judges = {judge.peer_id: endpoint(judge) for judge in judges}
        self.judge = self.judges[JUDGE.peer_id]
        self.bench = Bench(folder, shares=shares)
        self.orders: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()
        roles = {
            ANA.peer_id: ("rollout",),
            TOM.peer_id: ("trainer",),
            **dict.fromkeys(self.judges, ("validator",)),
        }
        network: Any = SimpleNamespace(
            endpoint=self.trainer,
            peers=lambda role="trainer": [peer for peer, given in roles.items() if role in given],
            given_roles=lambda peer: roles.get(peer, ()),
        )
        layout = layout_of(MODEL)
        self.publisher = PolicyPublisher(TOM, layout, "fp32", folder / "policies", 4, self.bench.emit)
        self.role = OrchestratorRole(
            network,
            TOM,
            self.bench.folder,
            self.publisher,
            self.bench.emit,
            lambda *told: self.orders.put_nowait(told),
        )
        self.reports: asyncio.Queue[Report] = asyncio.Queue()
        self.draws: asyncio.Queue[Draw] = asyncio.Queue()
        self.worker.handle(self.on_report)
        self.asked: dict[bytes, str] = {}
        self.draws_of: asyncio.Queue[tuple[str, Draw]] = asyncio.Queue()
        for peer, judge in self.judges.items():
            judge.handle(self.taking(peer))

    async def on_report(self, message: Report, context: Context) -> None:
        self.reports.put_nowait(message)

    def taking(self, judge: str) -> Callable[[Draw, Context], Awaitable[None]]:
        async def on_draw(message: Draw, context: Context) -> None:
            self.asked[message.digest] = judge
            self.draws.put_nowait(message)
            self.draws_of.put_nowait((judge, message))

        return on_draw

    async def lease(self) -> WorkLease:
        return await self.worker.request(TOM.peer_id, AskWork())

    def answer(self, lease: WorkLease, folder: Path) -> tuple[bytes, Signed]:
        """A worker's file for a lease."""
        work = self.bench.desk.state.kept.works[f"{ANA.peer_id}/{lease.counter}"]
        groups = tuple(made(work, position, (0.0, 1.0)) for position in lease.positions)
        path = folder / "made.parquet"
        write(path, self.bench.expected(work), groups, ANA)
        return load(path, Limits())

    async def put(
        self,
        lease: WorkLease,
        data: bytes,
        signed: Signed,
        *,
        begin: int = 0,
        end: int | None = None,
        **changes: Any,
    ) -> Receipt:
        async def frames() -> AsyncIterator[PutRollouts]:
            first = {
                "counter": lease.counter, "digest": signed.digest, "signature": signed.signature,
                "size": len(data), "offset": begin,
            }  # fmt: skip
            view = memoryview(data)[begin:end]
            yield PutRollouts(data=view[:1000], **{**first, **changes})
            for start in range(1000, len(view), 1000):
                yield PutRollouts(data=view[start : start + 1000], offset=begin + start)

        return await self.worker.feed(TOM.peer_id, PutRollouts, frames())


@asynccontextmanager
async def world(
    folder: Path, shares: Shares = NOTHING_HIDDEN, judges: Sequence[Identity] = (JUDGE,)
) -> AsyncIterator[World]:
    made_world = World(folder, shares, judges)
    nodes = (made_world.trainer, made_world.worker, *made_world.judges.values())
    for node in nodes:
        await node.start()
    for one in nodes:
        for other in nodes:
            if one is not other:
                introduce(one, other)
    await made_world.publisher.start("127.0.0.1", 0, "")
    params = np.zeros(layout_of(MODEL).size, np.float32)
    await made_world.publisher.publish(0, params, Digest(b"b" * 32))
    made_world.bench.desk._outward = made_world.role.outward
    made_world.role.serve(made_world.bench.desk)
    try:
        yield made_world
    finally:
        await made_world.role.close()
        await made_world.publisher.stop()
        await made_world.bench.close()
        for node in nodes:
            await node.stop()


async def test_an_upload_that_broke_off_goes_on_where_it_was(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        lease = await here.lease()
        assert lease.positions and lease.seconds > 0
        data, signed = here.answer(lease, tmp_path)
        half = len(data) // 2
        assert (await here.put(lease, data, signed, end=half)).held == half
        asked = await here.worker.request(
            TOM.peer_id, AskReceipt(counter=lease.counter, digest=signed.digest)
        )
        assert (asked.held, asked.done) == (half, False)
        receipt = await here.put(lease, data, signed, begin=half)
        assert receipt.done and receipt.taken
        again = await here.worker.request(
            TOM.peer_id, AskReceipt(counter=lease.counter, digest=signed.digest)
        )
        assert again.done and again.taken
        draw = await here.draws.get()
        assert (draw.digest, draw.worker, draw.positions) == (signed.digest, ANA.peer_id, lease.positions)
        fetched, signature = await fetch_file(here.judge, TOM.peer_id, draw.digest, Limits())
        assert fetched == data and signature.signer == TOM.peer_id, "who made it does not show"


async def test_bytes_that_were_not_signed_are_refused_and_dropped(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        lease = await here.lease()
        data, signed = here.answer(lease, tmp_path)
        wrong = bytes([*data[:-1], data[-1] ^ 1])
        with pytest.raises(NodeError) as refused:
            await here.put(lease, wrong, signed)
        assert refused.value.code is Code.RL_FILE_SIGNATURE
        held = await here.worker.request(TOM.peer_id, AskReceipt(counter=lease.counter, digest=signed.digest))
        assert held.held == 0, "nothing of it is kept, so the worker begins again"
        stolen = Signed.make(BEN, data)
        with pytest.raises(NodeError) as refused:
            await here.put(lease, data, stolen)
        assert refused.value.code is Code.RL_FILE_SIGNATURE
        assert (await here.put(lease, data, signed)).taken


async def test_more_than_was_announced_and_gaps_and_sizes_without_end_are_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        lease = await here.lease()
        data, signed = here.answer(lease, tmp_path)
        for changes, code in (
            ({"size": len(data) - 1}, Code.RL_FILE_TOO_LARGE),
            ({"size": 1 << 40}, Code.RL_FILE_TOO_LARGE),
            ({"size": 0}, Code.RL_FILE_TOO_LARGE),
            ({"offset": 17}, Code.RL_FILE_UNREADABLE),
            ({"counter": 99}, Code.RL_LEASE),
        ):
            with pytest.raises(NodeError) as refused:
                await here.put(lease, data, signed, **changes)
            assert refused.value.code is code, changes
        assert (await here.put(lease, data, signed)).taken


async def test_files_are_given_to_validators_and_not_to_workers(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        lease = await here.lease()
        data, signed = here.answer(lease, tmp_path)
        await here.put(lease, data, signed)
        with pytest.raises(NodeError) as refused:
            async with aclosing(here.worker.stream(TOM.peer_id, AskFile(digest=signed.digest))) as parts:
                await anext(parts)
        assert refused.value.code is Code.NET_AUDIENCE
        with pytest.raises(NodeError) as missing:
            await fetch_file(here.judge, TOM.peer_id, b"x" * 32, Limits())
        assert missing.value.code is Code.RL_FILE_UNREADABLE


async def test_a_worker_is_told_what_was_found_and_one_that_cheats_is_banned_with_evidence(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        lease = await here.lease()
        data, signed = here.answer(lease, tmp_path)
        await here.put(lease, data, signed)
        draw = await here.draws.get()
        found = Finding(code=str(Code.RL_PROOF), sentence="The proof is of other weights.")
        verdict = Verdict(
            digest=draw.digest, worker=draw.worker, counter=draw.counter, outcome="refused", findings=(found,)
        )
        await here.judge.send(TOM.peer_id, verdict)
        reports = [await here.reports.get(), await here.reports.get()]
        ban = next(report for report in reports if report.banned)
        told = next(report for report in reports if not report.banned)
        assert not told.accepted and "other weights" in told.sentence
        assert ban.evidence == (signed.digest,) and "other weights" in ban.sentence
        assert (await here.orders.get())[0] == ANA.peer_id
        assert here.bench.folder.evidence(signed.digest) is not None
        with pytest.raises(NodeError) as refused:
            await here.lease()
        assert refused.value.code is Code.RL_NO_WORK


async def test_a_validator_that_accepts_what_was_planted_is_found_and_counts_no_more(tmp_path: Path) -> None:
    async with world(tmp_path, Shares(twice=0.0, planted=1.0), (JUDGE, OTHER_JUDGE)) as here:
        await until(lambda: here.bench.desk.state.validators == set(here.judges))
        lease = await here.lease()
        data, signed = here.answer(lease, tmp_path)
        await here.put(lease, data, signed)
        draws = [await here.draws.get(), await here.draws.get()]
        draws.sort(key=lambda draw: draw.digest != signed.digest)
        assert draws[0].digest == signed.digest != draws[1].digest
        assert (draws[0].worker, draws[0].counter, draws[0].standing) == (
            draws[1].worker, draws[1].counter, draws[1].standing
        )  # fmt: skip
        keen, careless = (here.asked[draw.digest] for draw in draws)
        assert keen != careless, "who has seen the file would see that the other one is made from it"
        for draw in draws:
            judge = here.judges[here.asked[draw.digest]]
            _, signature = await fetch_file(judge, TOM.peer_id, draw.digest, Limits())
            assert signature.signer == TOM.peer_id
        yes = Verdict(
            digest=draws[1].digest, worker=draws[1].worker, counter=lease.counter, outcome="accepted"
        )
        await here.judges[careless].send(TOM.peer_id, yes)
        told = await here.bench.until("validator.distrusted")
        assert (told["validator"], told["digest"]) == (careless, draws[1].digest.hex())
        vouching = Verdict(
            digest=signed.digest, worker=draws[0].worker, counter=lease.counter, outcome="accepted"
        )
        await here.judges[careless].send(TOM.peer_id, vouching)
        await here.bench.until("verdict.received", 2)
        assert here.bench.desk.state.kept.files[signed.digest.hex()].state == "waiting"
        await here.judges[keen].send(TOM.peer_id, vouching)
        await here.bench.until("verdict.received", 3)
        assert here.bench.desk.state.kept.files[signed.digest.hex()].state == "accepted"


async def test_two_validators_that_disagree_are_decided_by_a_third_and_others_go_on(tmp_path: Path) -> None:
    judges = (JUDGE, OTHER_JUDGE, Identity.ephemeral(b"3" * 32))
    async with world(tmp_path, Shares(twice=1.0, planted=0.0), judges) as here:
        await until(lambda: here.bench.desk.state.validators == set(here.judges))
        lease = await here.lease()
        data, signed = here.answer(lease, tmp_path)
        await here.put(lease, data, signed)
        asked = [await here.draws_of.get(), await here.draws_of.get()]
        assert {draw.digest for _, draw in asked} == {signed.digest} and not any(
            draw.again for _, draw in asked
        )
        bad = Finding(code=str(Code.RL_PROOF), sentence="The proof is of other weights.")
        for (judge, draw), outcome, findings in zip(
            asked, ("accepted", "refused"), ((), (bad,)), strict=True
        ):
            verdict = Verdict(
                digest=draw.digest,
                worker=draw.worker,
                counter=draw.counter,
                outcome=outcome,
                findings=findings,
            )
            await here.judges[judge].send(TOM.peer_id, verdict)
        dispute = await here.bench.until("rollout.dispute")
        assert (dispute["accepting"], dispute["refusing"]) == ([asked[0][0]], [asked[1][0]])
        third, draw = await here.draws_of.get()
        assert third not in {judge for judge, _ in asked} and draw.again, (
            "the model is run for it in any case"
        )
        other = await here.lease()
        assert other.positions and not set(other.positions) & set(lease.positions), "others need not wait"
        yes = Verdict(digest=draw.digest, worker=draw.worker, counter=draw.counter, outcome="accepted")
        await here.judges[third].send(TOM.peer_id, yes)
        told = await here.reports.get()
        assert told.accepted and not told.banned
        overruled = {name: judge.overruled for name, judge in here.bench.desk.state.kept.judges.items()}
        assert overruled == {asked[0][0]: 0, asked[1][0]: 1, third: 0}


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.01)


async def test_work_that_is_given_back_is_free_again(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        lease = await here.lease()
        await here.worker.send(TOM.peer_id, Abandon(counter=lease.counter, reason="The environment failed."))
        assert not set(lease.positions) & here.bench.desk.state.holders().keys(), "nobody holds them now"
        assert (await here.lease()).counter == lease.counter + 1
