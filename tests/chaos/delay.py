"""A small proxy that delays what passes through it, for links of continents: ``python -m tests.chaos.delay PORT MS``.

It takes connections that the kernel redirected to it, and passes them on to the port that they were meant for, each
piece so much later. What was sent first arrives first; nothing is lost.
"""

import asyncio
import socket
import struct
import sys
from contextlib import suppress

_ORIGINAL_DESTINATION = 80  # SO_ORIGINAL_DST
_PIECE = 1 << 16


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Pass on what comes, each piece ``delay`` seconds after it came."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)

    async def deliver() -> None:
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                break
            writer.write(piece)
            await writer.drain()

    delivering = asyncio.ensure_future(deliver())
    try:
        with suppress(OSError):
            while piece := await reader.read(_PIECE):
                await pieces.put((loop.time() + delay, piece))
        await pieces.put((loop.time() + delay, b""))
        with suppress(OSError):
            await delivering
    finally:
        delivering.cancel()
        writer.close()


def meant_for(taken: socket.socket) -> int:
    """The port to which a redirected connection was made."""
    address = taken.getsockopt(socket.SOL_IP, _ORIGINAL_DESTINATION, 16)
    return int(struct.unpack_from("!2xH", address)[0])


async def serve(port: int, delay: float) -> None:
    """Delay both directions of every connection, until cancelled."""

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = meant_for(writer.get_extra_info("socket"))
        try:
            onward, back = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, back, delay), _pump(onward, writer, delay))

    server = await asyncio.start_server(taken, "0.0.0.0", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]) / 1000))
