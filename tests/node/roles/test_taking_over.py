"""Two trainers over real connections: what one had made of positions that fall to the other is taken over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from diloco.architecture import layout_of
from node.roles.files import fetch_file
from node.roles.orchestrator import OrchestratorRole
from node.roles.publishing import PolicyPublisher
from protocol.rpc import Context, Endpoint
from protocol.testing import introduce
from protocol.units import Digest
from rl.messages import Draw, Verdict
from rl.orchestration.books import lease_of
from rl.orchestration.desk import Outward
from rl.orchestration.events import Give
from rl.orchestration.feeding import next_batch
from rl.orchestration.rows import Opinion
from rl.rollouts.limits import Limits
from tests.node.roles.test_orchestrator import JUDGE, endpoint, until
from tests.node.roles.test_policies import MODEL
from tests.rl.orchestration.bench import Bench
from tests.rl.orchestration.world import next_value
from tests.rl.rollouts.making import ANA, MAX, TOM

TRAINERS = (TOM, MAX)


class Node:
    """One trainer: desk, disk, connections."""

    def __init__(self, identity: Any, folder: Path) -> None:
        self.identity, self.endpoint = identity, endpoint(identity)
        self.bench = Bench(folder, me=identity, trainers=TRAINERS)
        roles = {JUDGE.peer_id: ("validator",), **{each.peer_id: ("trainer",) for each in TRAINERS}}
        network: Any = SimpleNamespace(
            endpoint=self.endpoint,
            peers=lambda role="trainer": [
                peer for peer, given in roles.items() if role in given and peer != identity.peer_id
            ],
            given_roles=lambda peer: roles.get(peer, ()),
        )
        self.publisher = PolicyPublisher(
            identity, layout_of(MODEL), "fp32", folder / "policies", 4, self.bench.emit
        )
        self.role = OrchestratorRole(
            network, identity, self.bench.folder, self.publisher, self.bench.emit, None
        )

    async def start(self) -> None:
        await self.publisher.start("127.0.0.1", 0, "")
        await self.publisher.publish(0, np.zeros(layout_of(MODEL).size, np.float32), Digest(b"b" * 32))
        self.bench.desk._outward = self.outward
        self.role.serve(self.bench.desk)

    def outward(self, effect: Outward) -> None:
        self.bench.told.append(effect)
        self.role.outward(effect)

    async def close(self) -> None:
        await self.role.close()
        await self.publisher.stop()
        await self.bench.close()


class World:
    """Both of them, and a validator."""

    def __init__(self, folder: Path) -> None:
        self.tom, self.max = (Node(each, folder / each.peer_id) for each in TRAINERS)
        self.judge: Endpoint = endpoint(JUDGE)
        self.draws: asyncio.Queue[tuple[str, Draw]] = asyncio.Queue()
        self.judge.handle(self.on_draw)

    async def on_draw(self, message: Draw, context: Context) -> None:
        self.draws.put_nowait((context.sender, message))

    async def made_by_tom(self) -> bytes:
        """A file of Tom's, accepted by his validator, of which he has trained nothing."""
        digest = await self.tom.bench.make()
        while (await self.draws.get())[1].digest != digest:
            pass
        return digest

    def tom_leaves(self) -> tuple[int, ...]:
        """Max learns of a value in which Tom has no lease any more; the positions that fall to Max."""
        bench = self.max.bench
        bench.value = next_value(bench.value, {MAX.peer_id: 4}, (MAX.peer_id,), ())
        fallen = bench.desk.certified(bench.value)
        bench.desk.published(bench.desk.state.policy)
        return fallen


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    made = World(folder)
    nodes = (made.tom.endpoint, made.max.endpoint, made.judge)
    async with AsyncExitStack() as stack:
        for node in nodes:
            await node.start()
            stack.push_async_callback(node.stop)
        for one in nodes:
            for other in nodes:
                if one is not other:
                    introduce(one, other)
        for trainer in (made.tom, made.max):
            stack.push_async_callback(trainer.close)
            await trainer.start()
        for trainer in (made.tom, made.max):
            await until(lambda: trainer.bench.desk.state.validators == {JUDGE.peer_id})  # noqa: B023
        yield made


async def test_what_another_trainer_had_made_is_fetched_judged_again_and_trained_on(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        digest = await here.made_by_tom()
        made = {group.position for group in here.tom.bench.desk.state.kept.files[digest.hex()].groups}
        fallen = here.tom_leaves()
        assert made <= set(fallen)
        here.max.role.take_over(fallen)
        taken = await here.max.bench.until("file.taken")
        assert (taken["trainer"], taken["worker"]) == (TOM.peer_id, ANA.peer_id)
        asker, draw = await here.draws.get()
        assert (asker, draw.digest, draw.trainer) == (MAX.peer_id, digest, TOM.peer_id)
        assert not draw.again and draw.number == 1, "it is one of Max' files as any other"
        data, signed = await fetch_file(here.judge, MAX.peer_id, digest, Limits())
        assert signed.signer == MAX.peer_id and data == here.tom.bench.folder.path(digest).read_bytes()
        yes = Verdict(digest=digest, worker=draw.worker, counter=draw.counter, outcome="accepted")
        await here.judge.send(MAX.peer_id, yes)
        await here.max.bench.until("verdict.received")
        state = here.max.bench.desk.state
        held = state.holders()
        assert {held[position] for position in made} == {state.kept.files[digest.hex()]}
        here.max.bench.start()  # and kill -9 loses nothing of it
        assert here.max.bench.desk.state.kept == state.kept


async def test_when_the_other_trainer_is_dead_its_part_is_made_anew(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        digest = await here.made_by_tom()
        made = {group.position for group in here.tom.bench.desk.state.kept.files[digest.hex()].groups}
        await here.tom.endpoint.stop()
        fallen = here.tom_leaves()
        here.max.role.take_over(fallen)
        told = await here.max.bench.until("files.unknown")
        assert told["trainer"] == TOM.peer_id
        given: set[int] = set()
        desk = here.max.bench.desk
        holding: list[int] = []
        while isinstance(give := desk.ask(ANA.peer_id, tuple(holding)), Give):
            given |= set(give.work.positions)
            desk.abandon(ANA.peer_id, give.work.counter, "") if given > made else holding.append(
                give.work.counter
            )
            if given > made:
                break
        assert made <= given, "workers are given what Tom had"


async def test_what_is_not_whole_is_not_taken_over_and_the_rest_is(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        first, second = await here.made_by_tom(), await here.made_by_tom()
        path = here.tom.bench.folder.path(first)
        path.write_bytes(path.read_bytes()[:-1])
        here.max.role.take_over(here.tom_leaves())
        assert (await here.max.bench.until("file.taken"))["digest"] == second.hex()
        assert (await here.max.bench.until("file.not-taken"))["digest"] == first.hex()
        assert first.hex() not in here.max.bench.desk.state.kept.files


async def test_a_lease_that_stays_is_fed_by_both_what_was_there_and_what_was_taken_over(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        digest = await here.made_by_tom()
        here.max.role.take_over(here.tom_leaves())
        await here.max.bench.until("file.taken")
        desk = here.max.bench.desk
        desk.judged(digest, Opinion(JUDGE.peer_id, True))
        lease = lease_of(desk.state.value, MAX.peer_id)
        assert lease is not None
        while (batch := next_batch(desk.state, lease, 0, 4)) is None:
            work = here.max.bench.ask()
            await here.max.bench.answer(work)
            made = [each for each in desk.state.kept.files.values() if each.state == "waiting"]
            desk.judged(made[-1].digest, Opinion(JUDGE.peer_id, True))
        files = {file for file, _ in batch.groups}
        assert len(batch.groups) == 4 and files <= {bytes.fromhex(key) for key in desk.state.kept.files}
        assert len(batch.groups) == len({position for _, position in batch.groups}), "each once"
        with_tom = {position for file, position in batch.groups if file == digest}
        wanted = {each.position for each in desk.state.wanted if each.round == desk.state.policy}
        theirs = {group.position for group in desk.state.kept.files[digest.hex()].groups}
        assert with_tom == theirs & wanted
