"""The directory process's end of the link: answers calls until the node closes it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from protocol.directory.frames import error_frame, read_frame
from protocol.errors import Code, NodeError


async def serve(
    answer: Callable[[dict[str, Any]], Awaitable[Any]],
    reader: asyncio.StreamReader,
    emit: Callable[[dict[str, Any]], None],
) -> None:
    """Answers the node until it closes the link."""
    running: set[asyncio.Task[None]] = set()

    async def reply(frame: dict[str, Any]) -> None:
        try:
            emit({"id": frame["id"], "result": await answer(frame)})
        except NodeError as error:
            emit({"id": frame["id"], "error": error_frame(error)})
        except Exception as error:  # the process goes on; the caller is told
            wrong = NodeError(Code.DIR_RECORD, f"The directory failed at {frame['op']}: {error!r}.")
            emit({"id": frame["id"], "error": error_frame(wrong)})

    while (frame := await read_frame(reader)) is not None:
        task = asyncio.create_task(reply(frame))
        running.add(task)
        task.add_done_callback(running.discard)


async def first(*steps: Awaitable[Any]) -> int:
    """Runs all until one is done; returns which, or raises what it raised."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return next(index for index, task in enumerate(tasks) if task in done and (task.result(), True))
