"""Two endpoints that trust each other, one of them with handlers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from protocol.rpc import Endpoint
from protocol.testing import local_endpoints
from tests.protocol.rpc.words import Speaker


@dataclass(frozen=True)
class Pair:
    """``caller`` calls, ``server`` serves what ``speaker`` says."""

    caller: Endpoint
    server: Endpoint
    speaker: Speaker


def serve(endpoint: Endpoint, speaker: Speaker) -> None:
    for handler in (
        speaker.on_word,
        speaker.on_rare,
        speaker.on_ask,
        speaker.on_ask_members,
        speaker.on_spell,
        speaker.on_pull,
        speaker.on_echo,
    ):
        endpoint.handle(handler)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with local_endpoints(2) as (caller, server):
        speaker = Speaker()
        serve(server, speaker)
        yield Pair(caller, server, speaker)
