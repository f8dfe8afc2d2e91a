"""Changes as server-sent events: numbered, without gaps, or an event that says to begin anew."""

import asyncio
import json
from collections.abc import AsyncIterator

from node.coordinator.service import Batch, Service

_ALIVE = 15.0  # seconds between comments that keep proxies from closing a silent stream


async def events(service: Service, last: str) -> AsyncIterator[bytes]:
    """The stream of one client.

    Args:
        service: Whose changes.
        last: The id of the last event that the client has, as ``BOOT.NUMBER``; empty to begin with the present.

    Yields:
        Events: ``begin`` with boot and number, after which the client reads the snapshot; ``deltas`` with an array of
        deltas, whose id counts on by one.
    """
    boot, _, number = last.partition(".")
    after = int(number) if boot == service.boot and number.isdigit() and len(number) < 16 else None
    subscription = service.subscribe(after)
    if subscription is None:
        after, subscription = None, service.subscribe()
    assert subscription is not None
    coming: asyncio.Future[Batch | None] | None = None
    try:
        yield b"retry: 2000\n\n"
        if after is None:
            here = json.dumps({"boot": service.boot, "number": service.number})
            yield f"id: {service.boot}.{service.number}\nevent: begin\ndata: {here}\n\n".encode()
        following = aiter(subscription)
        coming = asyncio.ensure_future(anext(following, None))
        while True:
            done, _ = await asyncio.wait((coming,), timeout=_ALIVE)
            if not done:
                yield b": still here\n\n"
                continue
            batch = coming.result()
            if batch is None:  # too far behind, or the service ends: the client comes again
                return
            head = f"id: {service.boot}.{batch.number}\nevent: deltas\ndata: ".encode()
            yield head + batch.body + b"\n\n"
            coming = asyncio.ensure_future(anext(following, None))
    finally:
        if coming is not None:
            coming.cancel()
        subscription.close()
