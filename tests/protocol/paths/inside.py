"""One node of a lab: ``python -m tests.protocol.paths.inside NAME FOLDER OPTIONS``, in a network namespace.

It reads one JSON command per line and answers with one JSON line. It is the node's own network layer with two messages
more: a ping, and a stream of as many bytes as one asks for.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

from node.network import Network
from protocol import field, message, request
from protocol.directory import RelayService
from protocol.identity import Identity
from protocol.rpc import Context
from protocol.units import Address, Bytes, PeerId

FRAME = 256 * 1024


@message("tests.pong", version=1, max_bytes="1 KiB", rate="1000/s", audience="anyone")
class Pong:
    text: str = field(1)


@request(
    "tests.ping", version=1, max_bytes="1 KiB", rate="1000/s", timeout="10 s", audience="anyone", replies=Pong
)
class Ping:
    text: str = field(1)


@message("tests.part", version=1, max_bytes="1 MiB", rate="10000/s", audience="anyone", plane="bulk")
class Part:
    data: bytes = field(1)


@request(
    "tests.ask-bytes", version=1, max_bytes="1 KiB", rate="1000/s", timeout="60 s", audience="anyone", replies=Part,
    stream=True, plane="bulk",
)  # fmt: skip
class AskBytes:
    count: int = field(1)


class Inside:
    """The node."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.events: list[dict[str, Any]] = []
        relay = options.get("relay")
        self.network = Network(
            Identity.ephemeral(),
            folder,
            listen=Address(options.get("listen", "0.0.0.0"), options.get("port", 0)),
            directory_port=options.get("directory_port", 0),
            announce=options.get("announce", ""),
            upload=None,
            roles=("trainer",),
            emit=lambda kind, **fields: self.events.append({"kind": kind, **fields}),
            reach=options.get("reach", "auto"),
            relay=None if relay is None else RelayService(most=Bytes(relay)),
        )
        self.network.endpoint.handle(self.on_ping)
        self.network.endpoint.handle(self.on_ask_bytes)

    async def on_ping(self, message: Ping, context: Context) -> Pong:
        return Pong(text=f"{message.text} from {context.sender}")

    async def on_ask_bytes(self, message: AskBytes, context: Context) -> AsyncIterator[Part]:
        for start in range(0, message.count, FRAME):
            yield Part(data=bytes(min(FRAME, message.count - start)))

    async def answer(self, command: dict[str, Any]) -> Any:
        """Carries out one command."""
        network = self.network
        peer = PeerId(command.get("peer", ""))
        match command["do"]:
            case "start":
                await network.start(tuple(command["join"]))
                await network.publish()
                self.watch = asyncio.create_task(network.watch())
                assert network.directory is not None
                said = {"peer": network.me, "multiaddrs": network.directory.multiaddrs}
                return said | vars(network.ways.standing)
            case "find":
                async with asyncio.timeout(command["within"]):
                    while network.trust.find(peer) is None:
                        await asyncio.sleep(0.1)
                return network.trust.addresses(peer)
            case "record":
                return vars(network.newcomers[peer]) | {"certificate_pem": "", "boot": "", "admission": ""}
            case "ping":
                async with asyncio.timeout(command["within"]):
                    while True:
                        try:
                            reply = await network.endpoint.request(peer, Ping(text=command["text"]))
                            return {"text": reply.text, "way": network.ways.to(peer)}
                        except Exception as error:
                            why = str(error)
                            if not getattr(error, "retriable", False):
                                return {"error": why}
                            await asyncio.sleep(0.2)
            case "pull":
                began, count = time.monotonic(), 0
                ask = AskBytes(count=command["count"])
                async with aclosing(
                    network.endpoint.stream(peer, ask, progress=timedelta(seconds=30))
                ) as parts:
                    async for part in parts:
                        count += len(part.data)
                return {"count": count, "seconds": time.monotonic() - began}
            case "beat":
                return await self.beat(peer, command["seconds"], command["limit"])
            case "events":
                return self.events
            case "stop":
                self.watch.cancel()
                await network.stop()
                return "stopped"
        raise ValueError(command)

    async def beat(self, peer: PeerId, seconds: float, limit: float) -> dict[str, float]:
        """Heartbeats: how long the slowest took, and how many did not come within the limit."""
        end, slowest, lost, beats = time.monotonic() + seconds, 0.0, 0, 0
        while (began := time.monotonic()) < end:
            try:
                ping = Ping(text="beat")
                await self.network.endpoint.request(peer, ping, timeout=timedelta(seconds=limit))
            except Exception:
                lost += 1
            slowest, beats = max(slowest, time.monotonic() - began), beats + 1
            await asyncio.sleep(max(0.0, began + 0.25 - time.monotonic()))
        return {"slowest": slowest, "lost": lost, "beats": beats}


async def main() -> None:
    """Answers commands until there are none, several at a time."""
    inside = Inside(Path(sys.argv[1]), json.loads(sys.argv[2]))
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def one(command: dict[str, Any]) -> None:
        try:
            answer = {"id": command["id"], "answer": await inside.answer(command)}
        except Exception as error:
            answer = {"id": command["id"], "error": repr(error)}
        print(json.dumps(answer, default=str), flush=True)

    tasks = set()
    while line := await reader.readline():
        task = asyncio.create_task(one(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(main())
