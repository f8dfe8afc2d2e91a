"""What a node and its directory process say to each other: bounded, length-prefixed JSON over a socket pair.

The first frame is the configuration. After it the node sends ``{"id", "op", …}`` and gets ``{"id", "result"}`` or
``{"id", "error"}``; the process sends ``{"event": "progress" | "helper" | "ready" | "failed", …}`` by itself. Both
ends belong to one node, so the bounds are against mistakes; what records hold is checked again where they are used.
"""

import asyncio
import base64
import json
from typing import Any

from protocol.directory.limits import MAX_FRAME
from protocol.errors import Code, NodeError

_PREFIX = 4


def to_text(data: bytes) -> str:
    """Bytes as they stand in a frame."""
    return base64.b64encode(data).decode("ascii")


def from_text(text: str) -> bytes:
    """The bytes that :func:`to_text` wrote."""
    return base64.b64decode(text, validate=True)


def error_frame(error: NodeError) -> dict[str, Any]:
    """An error as it stands in a frame."""
    return {"code": error.code.value, "sentence": error.sentence, "fix": error.fix, "peer": error.peer}


def error_of(frame: dict[str, Any]) -> NodeError:
    """The error that :func:`error_frame` wrote."""
    return NodeError(Code(frame["code"]), frame["sentence"], fix=frame["fix"], peer=frame["peer"])


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next frame, or nothing when the other end is gone.

    Raises:
        ValueError: The frame is too large or not a JSON object.
    """
    try:
        size = int.from_bytes(await reader.readexactly(_PREFIX))
        if size > MAX_FRAME:
            raise ValueError(f"a frame of {size} bytes")
        frame = json.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    if not isinstance(frame, dict):
        raise ValueError("a frame that is not an object")
    return frame


def write_frame(writer: asyncio.StreamWriter, frame: dict[str, Any]) -> None:
    """Queues a frame; the caller drains.

    Raises:
        ValueError: The frame is too large.
    """
    data = json.dumps(frame, separators=(",", ":")).encode()
    if len(data) > MAX_FRAME:
        raise ValueError(f"a frame of {len(data)} bytes")
    writer.write(len(data).to_bytes(_PREFIX) + data)
