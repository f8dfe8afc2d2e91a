"""The engine in an event loop: many at once, cancellation, updates under way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio
from safetensors.torch import save_file

from protocol.errors import Code, NodeError
from protocol.units import Digest
from rl.engine.interface import Request
from rl.engine.limits import Limits
from rl.engine.service import TorchEngine
from rl.sampling import Sampling
from shardcast.digest import file_digest
from tests.rl.engine.small import Out, generator, reference, request, run


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[TorchEngine]:
    made = TorchEngine(generator(Limits(slots=4)))
    yield made
    await made.close()


async def collected(engine: TorchEngine, asked: Request) -> Out:
    out = Out()
    async for piece in engine.generate(asked):
        out.take(piece)
    return out


def saved(folder: Path, seed: int) -> tuple[Path, Digest]:
    path = folder / f"{seed}.safetensors"
    tensors = {name: each.detach() for name, each in reference(seed).named_parameters()}
    save_file(tensors, path)
    return path, Digest(file_digest(path))


async def test_many_requests_at_once_give_what_each_gives_alone(engine: TorchEngine) -> None:
    asked = [request(f"r{number}", 3 + 7 * number) for number in range(9)]
    outs = await asyncio.gather(*(collected(engine, each) for each in asked))
    alone = generator()
    for each, out in zip(asked, outs, strict=True):
        assert out == run(alone, each)[each.id]
    assert engine.counts.sampled_tokens == 9 * 40 and engine.counts.finished == 9


async def test_one_that_stops_listening_frees_its_place(engine: TorchEngine) -> None:
    endless = request("endless", sampling=Sampling(max_tokens=400))
    async with aclosing(engine.generate(endless)) as pieces:
        async for _ in pieces:
            break
    out = await collected(engine, request("endless"))  # its id is free, too
    assert len(out.tokens) == 40
    assert (engine.counts.cancelled, engine.running) == (1, 0)


async def test_an_update_reaches_requests_under_way_and_none_loses_a_token(
    engine: TorchEngine, tmp_path: Path
) -> None:
    path, digest = saved(tmp_path, 1)
    asked = [request(f"r{number}", 5 + number, sampling=Sampling(max_tokens=300)) for number in range(6)]
    tasks = [asyncio.create_task(collected(engine, each)) for each in asked]
    while not engine.counts.sampled_tokens:
        await asyncio.sleep(0)
    await engine.update(1, path, digest)
    outs = await asyncio.gather(*tasks)
    assert engine.version == 1
    for out in outs:
        assert len(out.tokens) == 300
        assert list(out.versions) == sorted(out.versions)
        assert out.versions[-1] == 1


@pytest.mark.parametrize("what", ["digest", "cut", "missing", "shape", "nan", "older"])
async def test_weights_that_are_not_those_that_were_announced_change_nothing(
    engine: TorchEngine, tmp_path: Path, what: str
) -> None:
    path, digest = saved(tmp_path, 1)
    version = 1
    if what == "digest":
        digest = Digest(bytes(32))
    elif what == "cut":
        path.write_bytes(path.read_bytes()[:-1])
        digest = Digest(file_digest(path))
    elif what == "missing":
        path = tmp_path / "nothing"
    elif what in ("shape", "nan"):
        tensors = {name: each.detach().clone() for name, each in reference(1).named_parameters()}
        if what == "shape":
            tensors = {name: each[:-1].clone() for name, each in tensors.items()}
        else:
            tensors["model.norm.weight"][3] = float("nan")
        save_file(tensors, path)
        digest = Digest(file_digest(path))
    else:
        version = 0
    with pytest.raises(NodeError) as caught:
        await engine.update(version, path, digest)
    assert caught.value.code in (Code.RL_WEIGHTS, Code.SHC_TENSORS)
    assert engine.version == 0
    assert (await collected(engine, request())) == run(generator(), request())["a"]


async def test_a_failure_of_the_engine_reaches_everyone_who_waits(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = asyncio.create_task(collected(engine, request("waits", sampling=Sampling(max_tokens=400))))
    while not engine.counts.sampled_tokens:
        await asyncio.sleep(0)

    def broken() -> None:
        raise MemoryError("no memory")

    monkeypatch.setattr(engine._generator, "step", broken)
    for asked in (task, collected(engine, request("late"))):
        with pytest.raises(NodeError) as caught:
            await asked
        assert caught.value.code is Code.RL_ENGINE
    assert isinstance(engine.failure, MemoryError)


async def test_requests_under_way_end_when_the_engine_is_closed() -> None:
    engine = TorchEngine(generator())
    task = asyncio.create_task(collected(engine, request(sampling=Sampling(max_tokens=400))))
    while not engine.counts.sampled_tokens:
        await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(NodeError):
        await task
