"""Asking holders for the manifest, and which of what they offer is worth trying."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from protocol.errors import NodeError
from protocol.rpc import Endpoint
from protocol.units import PeerId
from shardcast.expect import Expect, Plan
from shardcast.grpc_carrier import ask_manifest
from shardcast.pace import Pace

Refuse = Callable[[str, NodeError], None]


async def offers(
    endpoint: Endpoint,
    name: str,
    holders: Sequence[PeerId],
    expect: Expect,
    refuse: Refuse,
    *,
    parallel: int,
    silence: timedelta,
    patience: timedelta,
) -> list[tuple[Plan, tuple[PeerId, ...]]]:
    """Plans that hold against the expectation, each with who may be asked for it, the most offered first.

    Where the expectation leaves only one possible manifest, the first good one is taken and all other holders may be
    asked for its shards; otherwise all are heard, and each is asked only for what it offered.

    Args:
        endpoint: Who asks.
        name: Of the object.
        holders: Whom to ask.
        expect: What a plan must satisfy.
        refuse: Told of each holder that offers something else or nothing.
        parallel: How many are asked at once.
        silence: How long one may say nothing.
        patience: How long a busy one is asked again.
    """
    found: dict[bytes, tuple[Plan, list[PeerId]]] = {}
    refused: set[PeerId] = set()
    places = asyncio.Semaphore(parallel)
    enough = asyncio.Event()
    digest = expect.manifest_digest or b""

    async def ask(peer: PeerId) -> None:
        pace = Pace(patience)
        while True:
            try:
                async with places:
                    raw = await ask_manifest(endpoint, peer, name, digest, silence)
                plan = await asyncio.to_thread(expect.judge, name, raw)
                break
            except NodeError as error:
                if not pace.again(error):
                    refused.add(peer)
                    refuse(peer, error)
                    return
            await pace.pause()
        found.setdefault(plan.manifest_digest, (plan, []))[1].append(peer)
        if expect.pinned:
            enough.set()

    asked = asyncio.gather(*(ask(peer) for peer in holders))
    waiting = asyncio.ensure_future(enough.wait())
    try:
        await asyncio.wait((asked, waiting), return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            asked.result()
    finally:
        asked.cancel()
        waiting.cancel()
        await asyncio.gather(asked, waiting, return_exceptions=True)
    ranked = sorted(found.values(), key=lambda offer: -len(offer[1]))
    if expect.pinned:
        return [(plan, tuple(h for h in holders if h not in refused)) for plan, _ in ranked[:1]]
    return [(plan, tuple(backers)) for plan, backers in ranked]
