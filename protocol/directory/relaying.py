"""What a relay offers, asked as a peer behind a router would ask.

The helper has two relay services when it is one: the one with the bounds that it was given, and one with libp2p's own
(128 KiB and two minutes a connection, of no use for a tunnel), and whichever its start sets up last is the one that
others meet. On one Go processor that was always the right one in trials, on two in four of five; so a relay's helper
has one, and the node looks, by a second helper with a key of the moment, and starts again where it is the wrong one.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from protocol.directory.control import Control
from protocol.directory.p2pd import Helper, HelperStanding
from protocol.directory.streams import HelperStreams
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.paths.limits import ASK
from protocol.paths.multiaddr import varint_at
from protocol.units import PeerId

_HOP = "/libp2p/circuit/relay/0.2.0/hop"
_RESERVE = b"\x02\x08\x00"
"""A ``HopMessage`` of type RESERVE, two bytes long."""

_LIMIT, _DATA = 4, 2


async def offered(
    messages: Any, *, program: Path, folder: Path, relay: PeerId, addresses: list[str]
) -> int | None:
    """How many bytes a relay offers to carry in each direction of a connection.

    Args:
        messages: The protobuf module of the helper's messages.
        program: The helper's binary.
        folder: A folder of the node.
        relay: The relay.
        addresses: Where it is.

    Returns:
        The bytes; None if it offers nothing.

    Raises:
        NodeError: ``E-DIR-001`` if the second helper does not start.
    """
    asker = Identity.ephemeral()
    helper = await Helper.start(
        program=program,
        seed=asker.seed,
        public_key=asker.public_key,
        folder=folder,
        listen="/ip4/127.0.0.1/tcp/0",
        announce=None,
        standing=HelperStanding(local=True),
        limit=timedelta(seconds=60),
        progress=lambda _: None,
    )
    control = Control(messages)
    try:
        await control.open(helper.door, count=1)
        deadline = time.monotonic() + ASK.total_seconds()
        while (wrong := await control.connect(relay, addresses)) is not None:
            if time.monotonic() > deadline:
                raise NodeError(Code.DIR_START, f"The relay cannot be reached from its own machine: {wrong}.")
            await asyncio.sleep(0.1)

        async def introduce(_: PeerId) -> str | None:
            return "it has no relay service"

        streams = HelperStreams(
            messages,
            door=helper.door,
            listener=helper.incoming,
            brought_to=helper.brought_to,
            ask=control.ask,
            introduce=introduce,
        )
        stream, _ = await streams.open(relay, _HOP)
        try:
            async with asyncio.timeout(ASK.total_seconds()):
                stream.writer.write(_RESERVE)
                await stream.writer.drain()
                return limit_in(await _sized(stream.reader))
        finally:
            stream.close()
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
        return None
    finally:
        control.close()
        await helper.stop()


async def _sized(reader: asyncio.StreamReader) -> bytes:
    head = b""
    while not head or head[-1] >= 0x80:
        head += await reader.readexactly(1)
    size, _ = varint_at(head, 0)
    if size > 4096:
        raise ValueError(f"an answer of {size} bytes")
    return await reader.readexactly(size)


def limit_in(answer: bytes) -> int | None:
    """The bytes of a connection that a ``HopMessage`` of type STATUS grants; None if it grants nothing.

    Raises:
        ValueError: It is none.
    """
    limit = _fields(answer).get(_LIMIT)
    found = _fields(limit).get(_DATA) if isinstance(limit, bytes) else None
    return found if isinstance(found, int) else None


def _fields(data: bytes) -> Mapping[int, int | bytes]:
    """A protobuf message's fields of kinds varint and bytes, the last of each number."""
    fields: dict[int, int | bytes] = {}
    at = 0
    while at < len(data):
        key, at = varint_at(data, at)
        value, at = varint_at(data, at)
        if key & 7 == 2:
            if at + value > len(data):
                raise ValueError("a field that ends early")
            fields[key >> 3] = data[at : at + value]
            at += value
        elif key & 7 == 0:
            fields[key >> 3] = value
        else:
            raise ValueError(f"a field of kind {key & 7}")
    return fields
