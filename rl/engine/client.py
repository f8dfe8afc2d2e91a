"""An engine in a process of its own, as an `Engine`: for the daemon of a rollout worker."""

import asyncio
import contextlib
import json
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp

from diloco.config import ModelSection
from protocol.errors import Code, NodeError
from protocol.files import write_whole
from protocol.units import Digest
from rl.engine.interface import Piece, Request
from rl.engine.limits import Limits
from rl.engine.shape import Shape
from rl.engine.texts import Layout
from rl.engine.weights import Kind

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_START_SECONDS = 120.0
_GRACE_SECONDS = 5.0
_MAX_ANSWER_BYTES = 2**28


class RemoteEngine:
    """See `rl.engine.interface.Engine`. A turn comes as one piece. To be closed."""

    def __init__(
        self, process: asyncio.subprocess.Process, port: int, secret: str, version: int, log: Path
    ) -> None:
        self.version = version
        self._process = process
        self._log = log
        self._session = aiohttp.ClientSession(
            f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {secret}"},
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, connect=_START_SECONDS),
            read_bufsize=2**20,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def generate(self, request: Request) -> AsyncIterator[Piece]:
        """See `Engine.generate`."""
        settings = asdict(request.sampling)
        settings["stop"], settings["stop_token_ids"] = list(request.sampling.stop), list(settings.pop("eos"))
        rollout: dict[str, Any] = {
            "seed": request.seed.hex(),
            "first": request.first,
            "prompt": request.prompt,
            "proofs": request.proofs,
            "keep": request.keep,
        }
        if request.former is not None:
            former = request.former
            rollout["former"] = {
                "id": former.id,
                "length": former.length,
                "proofs": [proof.hex() for proof in former.proofs],
                "proof_versions": list(former.proof_versions),
                "refills": former.refills,
            }
        answer = await self._post(
            "/inference/v1/generate",
            {
                "request_id": request.id,
                "token_ids": list(request.tokens),
                "sampling_params": settings,
                "rollout": rollout,
            },
        )
        try:
            choice = answer["choices"][0]
            made = choice["rollout"]
            piece = Piece(
                tuple(choice["token_ids"]),
                tuple(entry["logprob"] for entry in choice["logprobs"]["content"]),
                tuple(made["versions"]),
                made["finish"],
                tuple(bytes.fromhex(proof) for proof in made["proofs"]),
                tuple(made["proof_versions"]),
                made["refills"],
                made["reused"],
            )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise NodeError(Code.RL_ENGINE, f"The engine's answer cannot be read: {error!r:.100}.") from None
        yield piece

    async def update(self, version: int, weights: Path, digest: Digest) -> float:
        """See `Engine.update`."""
        answer = await self._post(
            "/control/update", {"version": version, "path": str(weights.resolve()), "digest": digest.hex()}
        )
        self.version = version
        try:
            return float(answer["cpu_seconds"])
        except (KeyError, TypeError, ValueError):
            raise NodeError(Code.RL_ENGINE, "The engine's answer to an update cannot be read.") from None

    async def release(self, id: str) -> None:
        """See `Engine.release`."""
        await self._post("/control/release", {"id": id})

    async def close(self) -> None:
        """End the process; requests under way fail."""
        await self._session.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def ready(self) -> None:
        """Wait until it answers.

        Raises:
            NodeError: ``RL_ENGINE``: it ended, or does not answer in time.
        """
        asked = asyncio.create_task(self._health())
        died = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait({asked, died}, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done() or asked.exception() is not None:
                raise NodeError(Code.RL_ENGINE, f"The engine did not start: {self._last_words()}")
        finally:
            asked.cancel()
            died.cancel()
            await asyncio.gather(asked, died, return_exceptions=True)

    async def _health(self) -> None:
        # The socket listens already: the connection waits until the process takes it.
        async with self._session.get("/health") as response:
            response.raise_for_status()

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        try:
            async with self._session.post(path, json=body) as response:
                raw = bytearray()
                async for part in response.content.iter_any():
                    raw += part
                    if len(raw) > _MAX_ANSWER_BYTES:
                        raise NodeError(Code.RL_ENGINE, "The engine's answer does not end.")
                answer = json.loads(raw)
                if response.status == 200:
                    return answer
                error = answer["error"]
                code = Code(error["code"])
                raise NodeError(code, str(error["message"]), fix="")
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            words = self._last_words() if self._process.returncode is not None else f"{error!r:.100}."
            raise NodeError(Code.RL_ENGINE, f"The engine does not answer: {words}") from None

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log.read_bytes()[-4096:].decode(errors="replace").strip().splitlines()
            if lines:
                return lines[-1][:300]
        return "it printed nothing."


async def start_engine(
    model: ModelSection,
    weights: Path,
    version: int,
    *,
    folder: Path,
    digest: Digest | None = None,
    kind: Kind = "float32",
    threads: int = 1,
    limits: Limits | None = None,
    tokenizer: str | None = None,
    layout: Layout = "plain",
) -> RemoteEngine:
    """Start an engine in a process that dies with this one.

    Args:
        model: The model's shape.
        weights: A safetensors file.
        version: Policy version of the weights.
        folder: Takes its configuration, its secret and its log.
        digest: The file digest, where it is known.
        kind: What to compute in.
        threads: torch's threads.
        limits: What it takes on.
        tokenizer: JSON text, for stop texts.
        layout: How messages are laid out.

    Raises:
        NodeError: ``RL_ENGINE``: it does not start.
    """
    limits = limits or Limits()
    folder.mkdir(parents=True, exist_ok=True)
    secret = secrets.token_hex(32)
    write_whole(folder / "secret", [secret.encode()])
    write_whole(folder / "config.json", [json.dumps(Shape.of(model).config()).encode()])
    options: dict[str, object] = {
        "weights": weights.resolve(),
        "config": folder / "config.json",
        "token-file": folder / "secret",
        "control-file": folder / "secret",
        "template": layout,
        "version": version,
        "kind": kind,
        "threads": threads,
        "slots": limits.slots,
        "waiting": limits.waiting,
        "held-bytes": limits.held_bytes,
        "held-seconds": limits.held_for.total_seconds(),
        "parent": os.getpid(),
    }
    if digest is not None:
        options["digest"] = digest.hex()
    if tokenizer is not None:
        write_whole(folder / "tokenizer.json", [tokenizer.encode()])
        options["tokenizer"] = folder / "tokenizer.json"
    environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads)), "TOKENIZERS_PARALLELISM": "false"}
    root = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    log = folder / "engine.log"
    with socket.create_server(("127.0.0.1", 0)) as listening, log.open("wb") as output:
        port = listening.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rl.engine", "--listen", str(listening.fileno())),
            *(word for name, value in options.items() for word in (f"--{name}", str(value))),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            pass_fds=(listening.fileno(),),
            process_group=0,
        )
    engine = RemoteEngine(process, port, secret, version, log)
    try:
        await engine.ready()
    except BaseException:
        await engine.close()
        raise
    return engine
