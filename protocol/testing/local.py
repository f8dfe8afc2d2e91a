"""Real endpoints in one process: gRPC over mutual TLS on loopback, with identities that no file holds."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from protocol.identity import Identity
from protocol.rpc.endpoint import Endpoint
from protocol.tls import make_certificate
from protocol.trust import Trust
from protocol.units import Address, PeerId, RunId

RUN = RunId("7e" * 32)
"""The run that test endpoints belong to."""


def everybody(peer: PeerId, audience: str) -> bool:
    """An audience check that lets every trusted peer through."""
    return True


def make_node(*, seed: int | None = None, run: RunId | None = RUN, **options: Any) -> Endpoint:
    """An endpoint with a fresh (or, with ``seed``, always the same) identity; it trusts nobody and is not started.

    Args:
        seed: Makes the identity reproducible.
        run: The run.
        options: Further arguments of :class:`protocol.rpc.Endpoint`.
    """
    identity = Identity.ephemeral(None if seed is None else seed.to_bytes(32, "big"))
    options.setdefault("audience", everybody)
    tls = make_certificate(identity.peer_id)
    return Endpoint(identity, tls, Trust(), run=run, boot=secrets.token_bytes(16), **options)


def introduce(learner: Endpoint, other: Endpoint, address: Address | None = None) -> None:
    """Lets one endpoint trust another, as a directory record would."""
    at = address or other.address
    learner.trust.learn(other.peer_id, other.tls.certificate_pem, () if at is None else (at,))


@asynccontextmanager
async def local_endpoints(count: int, **options: Any) -> AsyncIterator[tuple[Endpoint, ...]]:
    """``count`` started endpoints that trust one another; handlers may be added inside.

    At the end all are stopped, calls under way included.
    """
    nodes = tuple(make_node(**options) for _ in range(count))
    try:
        for node in nodes:
            await node.start()
        for node in nodes:
            for other in nodes:
                if node is not other:
                    introduce(node, other)
        yield nodes
    finally:
        for node in nodes:
            await node.stop(timedelta())
