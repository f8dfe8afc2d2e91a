"""The process of one environment: ``python -m rl.environments.hosted PARENT DESCRIPTOR MEMORY``; see `hosting`."""

import asyncio
import json
import resource
import socket
import sys
from dataclasses import asdict

from protocol.errors import NodeError
from protocol.parent import die_with_parent
from rl.environments.hosting import LINE, message_of, task_of
from rl.environments.interface import Environment, Json
from rl.environments.registry import load


async def _answer(environment: Environment, question: dict[str, Json]) -> Json:
    match question:
        case {"do": "task", "seed": int(seed)}:
            return asdict(environment.task(seed))
        case {"do": "reply", "task": task, "transcript": list(said)}:
            reply = await environment.reply(task_of(task), tuple(map(message_of, said)))
            return None if reply is None else asdict(reply)
        case {"do": "score", "task": task, "transcripts": list(all_said)}:
            transcripts = [
                tuple(map(message_of, said)) if isinstance(said, list) else () for said in all_said
            ]
            return [float(reward) for reward in await environment.score(task_of(task), transcripts)]
    raise ValueError("not a question")


def _why(error: BaseException) -> str:
    return error.sentence if isinstance(error, NodeError) else f"{type(error).__name__}: {error}"[:500]


async def _serve(connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection, limit=LINE)
    environment: Environment | None = None
    under_way: set[asyncio.Task[None]] = set()

    def say(number: Json, **answer: Json) -> None:
        writer.write(json.dumps({"id": number, **answer}).encode() + b"\n")

    async def handle(environment: Environment, question: dict[str, Json]) -> None:
        try:
            say(question["id"], ok=await _answer(environment, question))
        except (Exception, SystemExit) as error:
            say(question["id"], error=_why(error))

    while line := await reader.readline():
        question = json.loads(line)
        if question["do"] == "load":
            try:
                environment = load(question["name"], question["config"])
                say(question["id"], ok=environment.version)
            except Exception as error:
                say(question["id"], error=_why(error))
        elif environment is not None:
            task = asyncio.ensure_future(handle(environment, question))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await writer.drain()
    close = getattr(environment, "close", None)
    if close is not None:
        await close()


def main(parent: int, descriptor: int, memory: int) -> None:
    """Bound this process and serve until the other side is gone."""
    die_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    asyncio.run(_serve(socket.socket(fileno=descriptor)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
