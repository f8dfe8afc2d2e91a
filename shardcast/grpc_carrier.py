"""The carrier between peers: manifests and shards as streams over the data plane."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any

from protocol.errors import Code, NodeError
from protocol.rpc import Endpoint
from protocol.units import PeerId
from shardcast import limits
from shardcast.carrier import Arrival
from shardcast.messages import AskManifest, AskShards, Frame, Want
from shardcast.piece import Piece, wrong


class GrpcCarrier:
    """Asks over an endpoint for the shards of one object.

    Args:
        endpoint: Whose connections are used.
        name: Of the object.
        digest: Of its manifest, or empty.
        silence: How long a holder may send nothing.
    """

    lanes = 1
    batch = limits.MAX_WANTS

    def __init__(self, endpoint: Endpoint, name: str, digest: bytes, silence: timedelta) -> None:
        self._endpoint, self._name, self._digest, self._silence = endpoint, name, digest, silence

    @asynccontextmanager
    async def draw(self, holder: str, pieces: Sequence[Piece]) -> AsyncIterator[AsyncIterator[Arrival]]:
        """See :class:`shardcast.carrier.Carrier`."""
        wanted = tuple(Want(index=piece.shard.index, offset=piece.have) for piece in pieces)
        question = AskShards(name=self._name, digest=self._digest, wanted=wanted)
        async with _asking(self._endpoint, holder, question, self._silence) as frames:
            arrivals = self._arrivals(holder, pieces, frames)
            async with aclosing(arrivals):
                yield arrivals

    async def _arrivals(
        self, holder: str, pieces: Sequence[Piece], frames: AsyncIterator[Frame]
    ) -> AsyncGenerator[Arrival, None]:
        due = iter(pieces)
        piece = next(due, None)
        async for frame in frames:
            if piece is None:
                raise wrong(holder, "it sends more than was asked for")
            if frame.index != piece.shard.index:
                raise wrong(holder, f"it sends shard {frame.index} where {piece.shard.index} is due")
            if not frame.missing:
                piece.take(holder, frame.offset, frame.data)
            whole = piece.whole
            if whole:
                await asyncio.to_thread(piece.store)
            yield Arrival(frame.index, frame.missing, whole)
            if frame.missing or whole:
                piece = next(due, None)


async def ask_manifest(
    endpoint: Endpoint, peer: PeerId, name: str, digest: bytes, silence: timedelta
) -> bytes:
    """The text that one holder offers.

    Raises:
        NodeError: What the holder or the connection says; SHC_MANIFEST, when the text is longer than any may be.
    """
    text = bytearray()
    async with _asking(endpoint, peer, AskManifest(name=name, digest=digest), silence) as parts:
        async for part in parts:
            if not part.data or len(text) + len(part.data) > limits.MAX_MANIFEST:
                raise NodeError(Code.SHC_MANIFEST, f"{peer} sends no manifest that could be one.", peer=peer)
            text += part.data
    return bytes(text)


def _asking(
    endpoint: Endpoint, holder: str, question: Any, silence: timedelta
) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
    return aclosing(endpoint.stream(PeerId(holder), question, progress=silence))
