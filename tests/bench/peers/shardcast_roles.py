"""One node of the reference package, in the interpreter that has it: ``python shardcast_roles.py ORDER``."""

import json
import logging
import sys
import time
from typing import Any


def main(order: dict[str, Any]) -> None:
    """Be an origin, a middle node or a client."""
    import shardcast

    logging.disable(logging.CRITICAL)
    folder, (first, second) = order["folder"], order["ports"]
    if order["role"] == "origin":
        shardcast.initialize(folder, first)
        _say("ready")
        for line in sys.stdin:
            shardcast.broadcast(line.strip())
    elif order["role"] == "middle":
        node = shardcast.MiddleNode([f"http://127.0.0.1:{first}"], folder, second, check_interval=1)
        _say("ready")
        sys.stdin.read()
        node.shutdown()
    else:
        client = shardcast.ClientNode([f"http://127.0.0.1:{second}"], folder)
        _say("ready")
        sys.stdin.readline()
        while "v1" not in client.list_available_versions():
            time.sleep(0.05)
        while client.download_version("v1", f"{folder}/copy") is None:
            time.sleep(0.05)
        _say("done")


def _say(answer: str) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
