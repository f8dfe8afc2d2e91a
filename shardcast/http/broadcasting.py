"""Three calls for a trainer that has no event loop: begin to serve, broadcast a file, stop.

They have the signatures of the package ``shardcast`` 0.3.2 and read the same environment variables for their defaults.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from protocol.errors import Code, NodeError
from protocol.identity import Identity
from shardcast.http.origin import Origin

SHARDCAST_HTTP_PORT = int(os.environ.get("SHARDCAST_HTTP_PORT", "8000"))
SHARDCAST_MAX_DISTRIBUTION_FOLDERS = int(os.environ.get("SHARDCAST_MAX_DISTRIBUTION_FOLDERS", "5"))
SHARDCAST_SHARD_SIZE = int(os.environ.get("SHARDCAST_SHARD_SIZE", "50000000"))

T = TypeVar("T")


class _Background:
    """An origin in a thread of its own."""

    def __init__(self, origin: Origin, host: str | None, port: int) -> None:
        self.origin = origin
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="shardcast-origin", daemon=True)
        self._thread.start()
        try:
            self.run(origin.start(host, port))
        except BaseException:
            self._end()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self.run(self.origin.stop())
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_running: _Background | None = None


def initialize(
    data_dir: str = "./data",
    port: int = SHARDCAST_HTTP_PORT,
    max_distribution_folders: int = SHARDCAST_MAX_DISTRIBUTION_FOLDERS,
) -> None:
    """Begin to serve on every address of this machine. A second call before `shutdown` changes nothing.

    The publisher's key is made in `data_dir` on the first call; ``publisher.id`` beside it holds the peer id that
    clients have to expect.

    Args:
        data_dir: Where the key lies, and what was published is remembered.
        port: To listen on.
        max_distribution_folders: Versions that stay.

    Raises:
        NodeError: NET_PORT_IN_USE, STO_….
    """
    global _running
    if _running is not None:
        return
    folder = Path(data_dir)
    identity = Identity.load_or_create(folder / "publisher.key")
    (folder / "publisher.id").write_text(f"{identity.peer_id}\n")
    _running = _Background(Origin(folder, identity, keep=max_distribution_folders), None, port)


def broadcast(file_path: str, shard_size: int = SHARDCAST_SHARD_SIZE) -> str:
    """Publish a file; clients may fetch it from the first moment on. Returns once it is hashed.

    The file is served from where it lies. It may be removed or replaced by another one afterwards, but never be written
    into.

    Args:
        file_path: The file.
        shard_size: Bytes of a shard, at most 64 MiB.

    Returns:
        The version.

    Raises:
        NodeError: CFG_USAGE before `initialize`; STO_… when the file cannot be read.
    """
    background = _running
    if background is None:
        raise NodeError(Code.CFG_USAGE, "Nothing serves yet.", fix="Call shardcast.initialize() first.")

    async def publish() -> str:
        publication = await background.origin.publish(Path(file_path), shard_size=shard_size)
        return (await publication.done()).version

    return background.run(publish())


def shutdown() -> None:
    """Serve nothing more. Without `initialize` before it does nothing."""
    global _running
    if _running is not None:
        _running.stop()
        _running = None
