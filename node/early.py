"""A stop signal before a node has begun: it ends there and then, with a sentence, as one that has nothing to finish.

Imports nothing but `os` and `signal`, so that it is in force before anything that takes time is loaded.
"""

import os
import signal
from typing import Any

STARTING = ("init", "run", "join", "coordinator")
"""The commands that start a node."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_before: dict[int, Any] = {}


def watch() -> None:
    """From now on a stop signal ends this process with status 0. Call it in the main thread."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            _before[number] = signal.signal(number, _end)


def before(number: int, handler: Any) -> Any:
    """What is to be put back for a handler that another one replaced: never the one of this module."""
    return _before.get(number, signal.SIG_DFL) if handler is _end else handler


def _end(number: int, frame: object) -> None:
    # what is on disk is whole, and no process was started: it is written, and they are, in that way
    os.write(2, b"Stopped before the node had begun.\n")
    os._exit(0)
