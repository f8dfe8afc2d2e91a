"""Drawing shards from holders by a carrier that the test holds in its hands."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from blake3 import blake3

from shardcast.carrier import Arrival
from shardcast.draw import Drawing
from shardcast.manifest import Shard
from shardcast.partial import PartFile
from shardcast.piece import Piece

CONTENT = b"abcdefgh"
SHARD = Shard(0, 0, len(CONTENT), blake3(CONTENT).digest())


class Slow:
    """A carrier with several lanes, by which nothing comes before it is let go."""

    lanes, batch = 4, 1

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def draw(self, holder: str, pieces: Sequence[Piece]) -> AsyncIterator[AsyncIterator[Arrival]]:
        yield self._arrivals(pieces)

    async def _arrivals(self, pieces: Sequence[Piece]) -> AsyncGenerator[Arrival, None]:
        self.asked.set()
        await self.go.wait()
        for piece in pieces:
            piece.take("holder", 0, memoryview(CONTENT))
            piece.store()
            yield Arrival(piece.shard.index, whole=True)


async def test_lanes_without_work_rest_until_something_changes(tmp_path: Path) -> None:
    part = PartFile(tmp_path / "object", len(CONTENT))
    carrier = Slow()
    drawing = Drawing(
        carrier, "object", len(CONTENT), part, lambda holder, error: None, None, patience=timedelta(seconds=60)
    )  # fmt: skip
    drawing.add([SHARD])
    drawing.seal()
    begun = 0

    def count(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> Any:
        nonlocal begun
        begun += 1
        return asyncio.Task(work, loop=loop, **options)

    asyncio.get_running_loop().set_task_factory(count)
    run = asyncio.create_task(drawing.run(["holder"], 4))
    async with asyncio.timeout(60):
        await carrier.asked.wait()
        for _ in range(500):
            await asyncio.sleep(0)
        assert begun < 50, "who finds nothing to do is not sent away and called up again"
        carrier.go.set()
        await run
    assert drawing.left == 0
    assert part.finish(None, None, durable=False)
    part.close()
    assert (tmp_path / "object").read_bytes() == CONTENT
