"""The gRPC carrier as a client sees it: ask a holder, read frames, leave whenever enough came."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import timedelta
from typing import Any

from protocol.rpc import Endpoint
from protocol.units import PeerId


def asking(
    endpoint: Endpoint, holder: PeerId, question: Any, silence: timedelta
) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
    """The replies of a holder; the call ends when the context is left, however it is left.

    Args:
        endpoint: Whose connections are used.
        holder: Who is asked.
        question: A request with a stream of replies.
        silence: How long the holder may send nothing.
    """
    return aclosing(endpoint.stream(holder, question, progress=silence))
