"""The clients of a coordinator's benchmark, in a process of their own as browsers are.

``python -m tests.bench.viewing URL VIEWERS ASKED``: viewers hold the stream of changes; one more asks for each path so
many times, 20 ms apart. Its last line on standard output is JSON: seconds per question by path. Asked for 0 times, it
views until its standard input ends.
"""

import json
import sys
import threading
import time

import httpx

PATHS = ("snapshot", "rounds?limit=5", "members?limit=50", "series", "credits", "verdict")


def view(url: str, ready: threading.Event) -> None:
    """One viewer: it holds the stream and reads all of it."""
    with httpx.Client(base_url=url, timeout=60) as client, client.stream("GET", "/api/v1/deltas") as stream:
        try:
            for _ in stream.iter_bytes():
                ready.set()
        except httpx.HTTPError:
            return


def ask(url: str, times: int) -> dict[str, list[float]]:
    """Seconds that each path took, each time."""
    found: dict[str, list[float]] = {path: [] for path in PATHS}
    with httpx.Client(base_url=url, timeout=60) as client:
        for _ in range(times):
            for path in PATHS:
                asked = time.perf_counter()
                assert client.get(f"/api/v1/{path}").status_code == 200
                found[path].append(time.perf_counter() - asked)
            time.sleep(0.02)
    return found


def main(url: str, viewers: str, times: str) -> None:
    """View and ask."""
    ready = [threading.Event() for _ in range(int(viewers))]
    for each in ready:
        threading.Thread(target=view, args=(url, each), daemon=True).start()
    for each in ready:
        each.wait()
    print("ready", flush=True)
    if not int(times):
        sys.stdin.read()
        return
    print(json.dumps(ask(url, int(times))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
