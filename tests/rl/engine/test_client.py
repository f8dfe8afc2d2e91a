"""The engine as a process of its own."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import aiohttp
import numpy as np
import psutil
import pytest
from safetensors.numpy import save_file

from diloco.architecture import initial_parameters, layout_of
from diloco.config import ModelSection
from diloco.data.tokenizer import train_tokenizer
from protocol.errors import Code, NodeError
from protocol.units import Digest
from rl.engine.client import RemoteEngine, start_engine
from rl.engine.generator import Generator
from rl.engine.interface import Former, Piece, Request
from rl.engine.shape import Shape, read_shape
from rl.engine.weights import from_file, from_flat
from rl.sampling import Sampling
from shardcast.digest import file_digest
from tests.rl.engine.small import Out, run

MODEL = ModelSection(hidden=32, layers=2, heads=4, kv_heads=2, intermediate=64, vocab=260, context=256)


def published(folder: Path, seed: int) -> tuple[Path, Digest]:
    path = folder / f"{seed}.safetensors"
    flat = initial_parameters(MODEL, seed)
    save_file({name: np.ascontiguousarray(each) for name, each in layout_of(MODEL).views(flat)}, path)
    return path, Digest(file_digest(path))


def turn(name: str, **settings: object) -> Request:
    asked = Request(name, tuple(range(40, 60)), name.encode().ljust(32), Sampling(max_tokens=50), proofs=True)
    return replace(asked, **settings)  # type: ignore[arg-type]


async def one(engine: RemoteEngine, asked: Request) -> Piece:
    [piece] = [piece async for piece in engine.generate(asked)]
    return piece


async def test_an_engine_in_a_process_gives_what_the_generator_gives(tmp_path: Path) -> None:
    path, digest = published(tmp_path, 1)
    newer, newer_digest = published(tmp_path, 2)
    engine = await start_engine(
        MODEL, path, 3, folder=tmp_path / "engine", digest=digest, tokenizer=train_tokenizer([], 260)
    )
    try:
        pieces = await asyncio.gather(*(one(engine, turn(f"r{number}")) for number in range(5)))
        alone = Generator(from_file(path, Shape.of(MODEL)), 3)
        for number, piece in enumerate(pieces):
            out = run(alone, turn(f"r{number}"))[f"r{number}"]
            assert out.last is not None
            assert (piece.tokens, piece.logprobs, piece.versions) == (out.tokens, out.logprobs, out.versions)
            assert piece.proofs == out.last.proofs and piece.proof_versions == (3, 3)

        kept = await one(engine, turn("kept", keep=True))
        former = Former("kept", 20 + len(kept.tokens), kept.proofs, kept.proof_versions, kept.refills)
        tokens = turn("kept").tokens + kept.tokens + (65, 66)
        sampling = Sampling(max_tokens=60, stop=("zzzz",))
        more = await one(
            engine, turn("more", tokens=tokens, prompt=20, first=50, former=former, sampling=sampling)
        )
        assert more.reused == 69

        await engine.update(4, newer, newer_digest)
        assert engine.version == 4
        assert set((await one(engine, turn("new"))).versions) == {4}
        with pytest.raises(NodeError) as caught:
            await engine.update(5, path, newer_digest)
        assert caught.value.code is Code.RL_WEIGHTS
        with pytest.raises(NodeError) as caught:
            await one(engine, turn("long", tokens=(1,) * 1_000_000))
        assert caught.value.code is Code.RL_REQUEST
        await engine.release("nobody")
        async with (
            aiohttp.ClientSession() as stranger,
            stranger.get(
                f"http://127.0.0.1:{engine._session._base_url.port}/v1/models"  # type: ignore[union-attr]
            ) as response,
        ):
            assert response.status == 401
    finally:
        await engine.close()
    assert not psutil.pid_exists(engine.pid)
    with pytest.raises(NodeError) as caught:
        await one(engine, turn("late"))
    assert caught.value.code is Code.RL_ENGINE


async def test_weights_that_are_not_those_announced_keep_the_engine_from_starting(tmp_path: Path) -> None:
    path, _ = published(tmp_path, 1)
    with pytest.raises(NodeError, match="digest") as caught:
        await start_engine(MODEL, path, 0, folder=tmp_path / "engine", digest=Digest(bytes(32)))
    assert caught.value.code is Code.RL_ENGINE


async def test_a_process_that_is_killed_is_noticed(tmp_path: Path) -> None:
    path, _ = published(tmp_path, 1)
    engine = await start_engine(MODEL, path, 0, folder=tmp_path / "engine")
    try:
        task = asyncio.create_task(one(engine, turn("a", sampling=Sampling(max_tokens=230))))
        await asyncio.sleep(0)
        os.kill(engine.pid, 9)
        with pytest.raises(NodeError) as caught:
            await task
        assert caught.value.code is Code.RL_ENGINE
    finally:
        await engine.close()


def test_others_may_reach_it_only_with_a_token(tmp_path: Path) -> None:
    path, _ = published(tmp_path, 1)
    done = subprocess.run(
        [sys.executable, "-m", "rl.engine", "--weights", str(path), "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "needs a --token-file" in done.stderr


def test_a_configuration_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    shape = Shape.of(MODEL)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(shape.config()))
    assert read_shape(path) == shape
    changes: list[dict[str, object]] = [
        {"model_type": "gpt2"},
        {"hidden_size": 10**9},
        {"hidden_size": "x"},
        {"attention_bias": True},
        {"num_key_value_heads": 3},
        {"rope_scaling": {"rope_type": "llama3"}},
        {"rms_norm_eps": 0.0},
    ]
    for change in changes:
        path.write_text(json.dumps({**shape.config(), **change}))
        with pytest.raises(NodeError):
            read_shape(path)
    path.write_text("[" * 10_000)
    with pytest.raises(NodeError):
        read_shape(path)


def test_a_flat_vector_and_its_file_are_one_model(tmp_path: Path) -> None:
    path, _ = published(tmp_path, 1)
    asked = Request("a", (1, 2, 3), bytes(32), Sampling(max_tokens=20))
    made = [from_file(path, Shape.of(MODEL)), from_flat(Shape.of(MODEL), initial_parameters(MODEL, 1))]
    first, second = (run(Generator(weights), asked)["a"] for weights in made)
    assert first == second and isinstance(first, Out)
    with pytest.raises(NodeError):
        from_flat(Shape.of(MODEL), initial_parameters(MODEL, 1)[:-1])


async def test_a_folder_is_served_by_one_command(tmp_path: Path) -> None:
    path, _ = published(tmp_path, 1)
    path.rename(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(Shape.of(MODEL).config()))
    (tmp_path / "tokenizer.json").write_text(train_tokenizer([], 260))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rl.engine", "--weights", str(tmp_path), "--socket", "engine.sock"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert b"serves version 0" in await process.stdout.readline()
        assert (tmp_path / "engine.sock").stat().st_mode & 0o777 == 0o600
        connector = aiohttp.UnixConnector(str(tmp_path / "engine.sock"))
        async with aiohttp.ClientSession("http://engine", connector=connector) as session:
            body = {
                "messages": [{"role": "user", "content": "hello"}],
                "max_tokens": 5,
                "return_token_ids": True,
            }
            async with session.post("/v1/chat/completions", json=body) as response:
                answer = await response.json()
            assert len(answer["choices"][0]["token_ids"]) == answer["usage"]["completion_tokens"] <= 5
            assert answer["model"] == tmp_path.name
            async with session.post("/control/update", json={}) as response:
                assert response.status == 404
    finally:
        process.terminate()
        assert await process.wait() == 0
