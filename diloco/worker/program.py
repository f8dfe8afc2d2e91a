"""The life of a worker process: it starts, serves the daemon's commands, ends."""

import argparse
import contextlib
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from diloco.genesis import Genesis
from diloco.worker.channel import Channel, Closed, Line
from protocol.errors import NodeError
from protocol.parent import die_with_parent

if TYPE_CHECKING:
    from diloco.worker.objective import Kind
    from diloco.worker.rank import Rank


def serve(kind: "Kind") -> int:
    """Serve commands until the daemon says shutdown or goes away."""
    options = _options()
    die_with_parent(options.parent)
    channel = Channel(socket.socket(fileno=options.socket))
    began = time.monotonic()
    try:
        genesis = Genesis.parse(options.genesis.read_bytes())
        if options.rank == 0:
            kind.prepare(genesis, options)
        # Torch and transformers take seconds to import; only now, so that wrong data is said at once.
        from diloco.worker.rank import Rank

        rank = Rank(options, genesis, channel, kind)
        channel.send({"event": "up", "seconds": time.monotonic() - began})
        with contextlib.suppress(Closed):
            while _serve(rank, channel, channel.read()):
                pass
    except NodeError as error:
        channel.send({"event": "failed", "code": error.code, "sentence": error.sentence, "fix": error.fix})
        return 1
    rank.close()
    sys.stderr.flush()
    os._exit(0)  # taking torch apart would cost another second


def _serve(rank: "Rank", channel: Channel, command: Line) -> bool:
    """Answer one command; False after the last one."""
    if command["do"] == "shutdown":
        return False
    if command["do"] != "stop":  # a stop that comes when its training has ended already asks for nothing
        channel.send({"event": "done", "id": command["id"], **getattr(rank, command["do"])(command)})
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("rank", "world", "threads", "socket", "state", "parent"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("genesis", "folder", "store"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--settings", required=True)
    return parser.parse_args()
