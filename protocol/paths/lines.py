"""What two nodes tell each other over a stream before it carries anything: JSON objects, one a line, bounded."""

import json
from typing import Any

from protocol.paths.limits import MAX_QUESTION
from protocol.paths.pipe import Duplex


async def tell(stream: Duplex, words: dict[str, Any]) -> None:
    """Sends an object.

    Raises:
        OSError: The stream has ended.
    """
    stream.writer.write(json.dumps(words).encode() + b"\n")
    await stream.writer.drain()


async def hear(stream: Duplex) -> dict[str, object]:
    """The next object.

    Raises:
        ValueError: What came is none, or too long.
        OSError: The stream has ended.
    """
    line = await stream.reader.readline()
    if len(line) > MAX_QUESTION or not line.endswith(b"\n"):
        raise ValueError("not one line")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError("not JSON") from error
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found
