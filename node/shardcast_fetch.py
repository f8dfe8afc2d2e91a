"""What ``intellect-node shardcast fetch`` does, and what it says of it."""

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from node.shardcast_options import Bar
from protocol.errors import NodeError

if TYPE_CHECKING:
    from shardcast.expect import Expect
    from shardcast.http.fetching import Fetched
    from shardcast.http.source import Source
    from shardcast.http.versions import Brought


async def fetch_deltas(
    sources: "list[Source]", to: Path, expect: "Expect", name: str, patience: timedelta, *, as_json: bool
) -> int:
    """Bring the newest version into a folder of versions by the cheapest way."""
    from shardcast.http.versions import Library

    assert expect.publisher is not None
    with Bar(as_json) as bar:
        library = Library(to, expect.publisher, name)
        brought = await library.bring(sources, patience=patience, progress=bar)
    _report_brought(brought, as_json)
    return 0


async def fetch_files(
    sources: "list[Source]",
    to: Path,
    expect: "Expect",
    name: str,
    patience: timedelta,
    *,
    follow: bool,
    serve: int,
    as_json: bool,
) -> int:
    """Bring a version into a file, or one after the other; `serve` is the port to serve it at, if it is not 0."""
    from shardcast.http.fetching import fetch_version
    from shardcast.http.peer import Peer
    from shardcast.scores import Scores

    peer, scores = Peer() if serve else None, Scores()
    have = 0
    if peer is not None:
        await peer.start(None, serve)
    while True:
        try:
            with Bar(as_json) as bar:
                fetched = await fetch_version(
                    sources, to, expect, name, newer_than=have, peer=peer, scores=scores,
                    patience=patience, progress=bar,
                )  # fmt: skip
        except NodeError as error:
            if not follow or not error.retriable:
                raise
            continue
        _report(fetched, to, as_json)
        if not follow:
            return 0
        have = fetched.serial


def _report(fetched: "Fetched", to: Path, as_json: bool) -> None:
    if as_json:
        shown = {
            "file": str(to), "name": fetched.name, "version": fetched.version, "serial": fetched.serial,
            "digest": fetched.manifest_digest.hex(), "size": fetched.size, "bytes": fetched.bytes,
            "resumed": fetched.resumed, "seconds": round(fetched.seconds, 3), "per_source": fetched.per_source,
            "refused": [{"source": e.peer, "code": str(e.code), "reason": e.sentence} for e in fetched.refused],
        }  # fmt: skip
        print(json.dumps(shown), flush=True)
        return
    for error in fetched.refused:
        print(f"{error.code}: {error.peer} was left: {error.sentence}", file=sys.stderr)
    speed = fetched.bytes / max(fetched.seconds, 1e-9) / 1e6
    print(
        f"{to}: {fetched.name} {fetched.version}, {fetched.size} bytes, {speed:.0f} MB/s, verified.",
        flush=True,
    )


def _report_brought(brought: "Brought", as_json: bool) -> None:
    if as_json:
        way = [{"size": offer.size, "delta": offer.parent is not None} for offer in brought.way]
        print(
            json.dumps({
                "file": str(brought.file.path), "version": brought.version, "serial": brought.serial,
                "file_digest": brought.file.digest.hex(), "bytes": brought.bytes, "way": way,
                "refused": [{"code": str(e.code), "reason": e.sentence} for e in brought.refused],
            })
        )  # fmt: skip
        return
    for error in brought.refused:
        print(f"{error.code}: a cheaper way was left: {error.sentence}", file=sys.stderr)
    print(f"{brought.file.path}: {brought.version}, {brought.bytes} bytes fetched, verified.")
