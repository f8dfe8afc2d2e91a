"""Bulk streams whose moving bytes count as a sign of life of their sender."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from diloco.member.presence import Presence
from protocol.rpc import Endpoint
from protocol.units import PeerId


class LivingStreams:
    """An endpoint's streams, watched by ``Presence``."""

    def __init__(self, endpoint: Endpoint, presence: Presence) -> None:
        self._endpoint, self._presence = endpoint, presence

    async def stream(
        self, peer: PeerId, request: object, *, progress: timedelta
    ) -> AsyncGenerator[Any, None]:
        """As ``Endpoint.stream``."""
        async with aclosing(self._endpoint.stream(peer, request, progress=progress)) as frames:
            async for frame in frames:
                self._presence.alive(peer)
                yield frame
