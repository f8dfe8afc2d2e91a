"""Policy versions on their way from a trainer to a worker, over real HTTP and real connections."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from diloco.architecture import layout_of
from diloco.config import ModelSection
from diloco.weights import read_weights
from node.roles import policies
from node.roles.policies import PolicyFollower
from node.roles.publishing import PolicyPublisher
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.rpc import Context, Endpoint
from protocol.testing import local_endpoints
from protocol.units import Digest
from rl.messages import AskPolicies, Policies, Policy

MODEL = ModelSection(hidden=16, layers=1, heads=2, kv_heads=1, intermediate=32, vocab=260, context=16)
LAYOUT = layout_of(MODEL)
TRAINER = Identity.ephemeral(b"t" * 32)


def emit(kind: str, /, **fields: Any) -> None:
    pass


def params(number: int) -> np.ndarray:
    return np.random.default_rng(number).standard_normal(LAYOUT.size).astype(np.float32)


def beacon(number: int) -> Digest:
    return Digest(bytes([number]) * 32)


@asynccontextmanager
async def publishing(
    folder: Path, keep: int = 4, identity: Identity = TRAINER
) -> AsyncIterator[PolicyPublisher]:
    publisher = PolicyPublisher(identity, LAYOUT, "fp32", folder, keep, emit)
    publisher.chain = lambda: (0, b"a" * 32)
    await publisher.start("127.0.0.1", 0, "")
    try:
        yield publisher
    finally:
        await publisher.stop()


@asynccontextmanager
async def following(there: Sequence[Endpoint], here: Endpoint, folder: Path) -> AsyncIterator[PolicyFollower]:
    follower = PolicyFollower(here, lambda: [each.peer_id for each in there], folder, (), 4, emit)
    task = asyncio.ensure_future(follower.run())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_each_version_arrives_bit_for_bit_and_says_its_beacon(tmp_path: Path) -> None:
    async with local_endpoints(2) as (there, here), publishing(tmp_path / "trainer") as publisher:
        there.handle(publisher.on_ask_policies)
        async with following((there,), here, tmp_path / "worker") as follower:
            for number in range(4):
                await publisher.publish(number, params(number), beacon(number))
                known = await follower.after(number - 1)
                assert (known.version, known.beacon) == (number, beacon(number))
                path = await follower.bring(known)
                assert (read_weights(path, LAYOUT) == params(number)).all()
            assert follower.anchor(there.peer_id, 0) == b"a" * 32
            older = await follower.told(1, timedelta(seconds=60))
            assert (read_weights(await follower.bring(older), LAYOUT) == params(1)).all()


async def test_who_comes_late_has_the_newest_and_those_of_the_window(tmp_path: Path) -> None:
    async with local_endpoints(2) as (there, here), publishing(tmp_path / "trainer", keep=3) as publisher:
        there.handle(publisher.on_ask_policies)
        for number in range(6):
            await publisher.publish(number, params(number), beacon(number))
        assert sorted(publisher.paths()) == [3, 4, 5]
        async with following((there,), here, tmp_path / "worker") as follower:
            await follower.after(4)
            for number in (3, 4, 5):
                known = await follower.told(number, timedelta(seconds=60))
                assert (read_weights(await follower.bring(known), LAYOUT) == params(number)).all()
            with pytest.raises(NodeError) as unknown:
                await follower.told(2, timedelta(seconds=0.1))
            assert unknown.value.code is Code.RL_POLICY


async def test_a_policy_with_other_weights_or_another_beacon_is_not_the_one_that_is_known(
    tmp_path: Path,
) -> None:
    async with local_endpoints(2) as (there, here), publishing(tmp_path / "trainer") as publisher:
        there.handle(publisher.on_ask_policies)
        await publisher.publish(0, params(0), beacon(0))
        async with following((there,), here, tmp_path / "worker") as follower:
            known = await follower.after(-1)
            assert follower.known(Policy(version=0, weights=known.weights, beacon=known.beacon))
            assert not follower.known(Policy(version=0, weights=b"x" * 32, beacon=known.beacon))
            assert not follower.known(Policy(version=0, weights=known.weights, beacon=b"x" * 32))
            assert not follower.known(Policy(version=1, weights=known.weights, beacon=known.beacon))


@pytest.mark.failure_mode(44)
async def test_a_version_that_was_written_in_part_is_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "trainer"
    async with publishing(folder) as publisher:
        await publisher.publish(0, params(0), beacon(0))
    (folder / "v1.safetensors").write_bytes(b"half of it")  # the trainer died before it wrote the note
    async with local_endpoints(2) as (there, here), publishing(folder) as publisher:
        there.handle(publisher.on_ask_policies)
        assert publisher.newest == -1 and publisher.made(0).beacon == beacon(0)
        with pytest.raises(NodeError):
            publisher.made(1)
        await publisher.publish(1, params(1), beacon(1))
        async with following((there,), here, tmp_path / "worker") as follower:
            known = await follower.after(0)
            assert (read_weights(await follower.bring(known), LAYOUT) == params(1)).all()


async def test_published_twice_is_published_once(tmp_path: Path) -> None:
    async with publishing(tmp_path) as publisher:
        await publisher.publish(0, params(0), beacon(0))
        first = publisher.made(0)
        await publisher.publish(0, params(0), beacon(0))
        assert publisher.made(0) == first


async def test_the_reference_outlives_the_window(tmp_path: Path) -> None:
    async with publishing(tmp_path, keep=2) as publisher:
        await publisher.publish(0, params(0), beacon(0))
        kept = publisher.keep_reference()
        for number in range(1, 5):
            await publisher.publish(number, params(number), beacon(number))
        assert sorted(publisher.paths()) == [3, 4] and (read_weights(kept, LAYOUT) == params(0)).all()


async def test_a_trainer_that_hangs_keeps_nobody_from_hearing_the_others(tmp_path: Path) -> None:
    async def hang(message: AskPolicies, context: Context) -> Policies:
        await asyncio.Event().wait()
        raise AssertionError

    async with local_endpoints(3) as (hanging, there, here), publishing(tmp_path / "trainer") as publisher:
        hanging.handle(hang)
        there.handle(publisher.on_ask_policies)
        async with following((hanging, there), here, tmp_path / "worker") as follower:
            for number in range(3):
                await publisher.publish(number, params(number), beacon(number))
                assert (await follower.after(number - 1)).version == number


async def test_a_version_comes_from_another_trainer_when_the_one_that_told_of_it_first_is_gone(
    tmp_path: Path,
) -> None:
    async with (
        local_endpoints(3) as (first, second, here),
        publishing(tmp_path / "first") as one,
        publishing(tmp_path / "second", identity=Identity.ephemeral(b"u" * 32)) as two,
    ):
        for number in range(2):
            for publisher in (one, two):
                await publisher.publish(number, params(number), beacon(number))
        first.handle(one.on_ask_policies)
        second.handle(two.on_ask_policies)
        async with following((first, second), here, tmp_path / "worker") as follower:
            while len((await follower.told(1, timedelta(seconds=60))).ways) < 2:
                await asyncio.sleep(0.01)
            await one.stop()
            for number in (1, 0):
                known = await follower.told(number, timedelta(seconds=60))
                assert len(known.ways) == 2
                assert (read_weights(await follower.bring(known), LAYOUT) == params(number)).all()


async def test_who_tells_other_weights_than_the_first_is_no_way_to_them(tmp_path: Path) -> None:
    async with (
        local_endpoints(3) as (first, second, here),
        publishing(tmp_path / "first") as one,
        publishing(tmp_path / "second", identity=Identity.ephemeral(b"u" * 32)) as two,
    ):
        await one.publish(0, params(0), beacon(0))
        await two.publish(0, params(9), beacon(0))
        follower = PolicyFollower(here, lambda: [], tmp_path / "worker", (), 4, emit)
        for trainer, publisher in ((first, one), (second, two)):
            trainer.handle(publisher.on_ask_policies)
            await follower.ask(trainer.peer_id)
        known = await follower.told(0, timedelta(seconds=60))
        assert len(known.ways) == 1
        assert (read_weights(await follower.bring(known), LAYOUT) == params(0)).all()


async def test_a_version_that_was_written_and_never_announced_is_announced_by_the_next_life(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "trainer"
    async with publishing(tmp_path / "other") as other:
        await other.publish(1, params(1), beacon(1))
        written = other.made(1)
    async with publishing(folder) as publisher:
        await publisher.publish(0, params(0), beacon(0))
    for name in ("v1.safetensors", "v1.json"):  # the trainer died when both lay there, before it told anybody
        (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())
    async with local_endpoints(2) as (there, here), publishing(folder) as publisher:
        there.handle(publisher.on_ask_policies)
        assert publisher.newest == -1 and publisher.made(1) == written, "nobody is told of what is not served"
        await publisher.publish(1, params(1), beacon(1))
        async with following((there,), here, tmp_path / "worker") as follower:
            known = await follower.after(0)
            assert (known.version, known.weights) == (1, written.weights)
            assert (read_weights(await follower.bring(known), LAYOUT) == params(1)).all()


@asynccontextmanager
async def spoiling(address: str) -> AsyncIterator[str]:
    """A relay that passes on what a server says, but for one bit of what is long."""

    async def pass_on(request: web.Request) -> web.Response:
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                address + request.path_qs, headers={"Range": request.headers.get("Range", "bytes=0-")}
            ) as got,
        ):
            body = bytearray(await got.read())
            if len(body) > 10_000:
                body[len(body) // 2] ^= 1
            kept = {
                name: value
                for name, value in got.headers.items()
                if name in ("Content-Type", "Content-Range")
            }
            return web.Response(status=got.status, body=bytes(body), headers=kept)

    app = web.Application()
    app.router.add_get("/{path:.*}", pass_on)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("lie", ["a manifest of its own", "other bytes"])
async def test_a_relay_that_lies_brings_nobody_other_weights(
    tmp_path: Path, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "_PATIENCE", timedelta(seconds=1))
    async with (
        local_endpoints(2) as (there, here),
        publishing(tmp_path / "trainer") as honest,
        publishing(tmp_path / "liar", identity=Identity.ephemeral(b"l" * 32)) as lying,
        spoiling(honest._address) as spoiler,
    ):
        there.handle(honest.on_ask_policies)
        await honest.publish(0, params(0), beacon(0))
        await lying.publish(0, params(7), beacon(0))
        liar = spoiler if lie == "other bytes" else lying._address
        for sources in ((liar,), (liar, honest._address)):
            folder = tmp_path / str(len(sources))
            follower = PolicyFollower(here, lambda: [there.peer_id], folder, sources, 4, emit)
            await follower.ask(there.peer_id)
            known = await follower.told(0, timedelta(seconds=60))
            if len(sources) == 2:
                assert (read_weights(await follower.bring(known), LAYOUT) == params(0)).all()
                continue
            with pytest.raises(NodeError):
                await follower.bring(known)
            assert not (folder / known.weights.hex()).exists()


async def test_a_trainer_that_publishes_other_weights_than_it_told_is_not_believed(tmp_path: Path) -> None:
    async with (
        local_endpoints(2) as (there, here),
        publishing(tmp_path / "trainer") as told,
        publishing(tmp_path / "served") as served,
    ):
        there.handle(told.on_ask_policies)
        await told.publish(0, params(0), beacon(0))
        await served.publish(0, params(7), beacon(0))
        follower = PolicyFollower(
            here, lambda: [there.peer_id], tmp_path / "worker", (served._address,), 4, emit
        )
        await follower.ask(there.peer_id)
        known = await follower.told(0, timedelta(seconds=60))
        with pytest.raises(NodeError) as refused:
            await follower.bring(known)
        assert refused.value.code is Code.RL_POLICY
        assert not (tmp_path / "worker" / known.weights.hex()).exists()
