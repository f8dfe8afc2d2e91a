"""The torch backend as an `Engine`: a generator in a thread of its own, spoken to from an event loop."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from protocol.errors import Code, NodeError
from protocol.units import Digest
from rl.engine.generator import Generator
from rl.engine.interface import Piece, Request
from rl.engine.weights import Kind, from_file

_T = TypeVar("_T")


@dataclass
class Counts:
    """What an engine has done since its start."""

    requests: int = 0
    finished: int = 0
    cancelled: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    reused_tokens: int = 0
    updates: int = 0


class TorchEngine:
    """See `rl.engine.interface.Engine`. To be made and used in one event loop, and closed."""

    def __init__(self, generator: Generator, kind: Kind = "float32", device: str = "cpu") -> None:
        self._generator = generator
        self._kind: Kind = kind
        self._device = device
        self._loop = asyncio.get_running_loop()
        self._orders: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._queues: dict[str, asyncio.Queue[Piece | BaseException]] = {}
        self._updating = asyncio.Lock()
        self._retired = asyncio.Event()
        self._closed = False
        self._failed: BaseException | None = None
        self._loader = ThreadPoolExecutor(1, "weights")
        self.counts = Counts()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The newest policy version."""
        return self._generator.version

    @property
    def running(self) -> int:
        """Requests that were taken on and have not ended."""
        return len(self._queues)

    @property
    def failure(self) -> BaseException | None:
        """What ended the engine's thread, if anything did."""
        return self._failed

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        """See `Engine.generate`."""
        await self._call(lambda: self._add(request))
        queue = self._queues[request.id]
        self.counts.requests += 1
        self.counts.prompt_tokens += len(request.tokens)
        done = False
        try:
            while not done:
                piece = await queue.get()
                if isinstance(piece, BaseException):
                    raise piece
                done = piece.finish is not None
                self.counts.sampled_tokens += len(piece.tokens)
                self.counts.reused_tokens += piece.reused
                yield piece
            self.counts.finished += 1
        finally:
            self._queues.pop(request.id, None)
            if not done:
                self.counts.cancelled += 1
                with contextlib.suppress(NodeError):
                    self._order(lambda: self._generator.cancel(request.id))

    async def update(self, version: int, weights: Path, digest: Digest) -> float:
        """See `Engine.update`."""
        async with self._updating:
            if version <= self.version:
                raise NodeError(Code.RL_WEIGHTS, f"Version {version} is not newer than {self.version}.")
            loaded, loading = await self._loop.run_in_executor(
                self._loader,
                lambda: _timed(
                    lambda: from_file(weights, self._generator.shape, self._kind, digest, self._device)
                ),
            )
            while not await self._call(lambda: self._generator.may_update):
                self._retired.clear()
                await self._retired.wait()
            _, taking = await self._call(lambda: _timed(lambda: self._generator.update(version, loaded)))
            self.counts.updates += 1
            return loading + taking

    async def release(self, id: str) -> None:
        """See `Engine.release`."""
        await self._call(lambda: self._generator.release(id))

    async def close(self) -> None:
        """End the thread; requests under way fail."""
        self._closed = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join)
        self._generator.close()
        self._loader.shutdown(wait=False)
        self._fail(NodeError(Code.RL_ENGINE, "The engine was closed."))

    def _add(self, request: Request) -> None:
        self._generator.add(request)
        self._queues[request.id] = asyncio.Queue()

    async def _call(self, what: Callable[[], _T]) -> _T:
        """Have the engine's thread do something between two steps."""
        future: asyncio.Future[_T] = self._loop.create_future()

        def settle(result: _T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def order() -> None:
            try:
                result = what()
            except Exception as error:
                self._loop.call_soon_threadsafe(settle, None, error)
            else:
                self._loop.call_soon_threadsafe(settle, result, None)

        self._order(order)
        return await future

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        self._wake.set()
        if self._failed is not None or self._closed:
            raise NodeError(Code.RL_ENGINE, "The engine has ended.")

    def _run(self) -> None:
        try:
            while not self._closed:
                self._wake.clear()
                while self._orders:
                    self._orders.popleft()()
                if not self._generator.busy:
                    self._wake.wait(1.0)  # a second, so that held conversations expire
                pieces = self._generator.step()
                # here, since the next order may add a request with the id of one that was cancelled
                told = [(queue, piece) for id, piece in pieces if (queue := self._queues.get(id)) is not None]
                self._loop.call_soon_threadsafe(self._deliver, told)
        except Exception as error:
            failure = NodeError(Code.RL_ENGINE, f"The engine failed: {error!r:.200}.")
            self._failed = error
            self._loop.call_soon_threadsafe(self._fail, failure)
        while self._orders:  # whoever waits for one is answered
            self._orders.popleft()()

    def _deliver(self, told: list[tuple[asyncio.Queue[Piece | BaseException], Piece]]) -> None:
        self._retired.set()
        for queue, piece in told:
            queue.put_nowait(piece)

    def _fail(self, error: BaseException) -> None:
        for queue in self._queues.values():
            queue.put_nowait(error)


def _timed(what: Callable[[], _T]) -> tuple[_T, float]:
    """What something gives, and the processor seconds that this thread spent on it."""
    began = time.thread_time()
    return what(), time.thread_time() - began
