"""Fetching a version from servers: which one, from whom, and what to do when it cannot be had."""

import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from shardcast import limits
from shardcast.draw import Progress, Watcher
from shardcast.expect import Expect
from shardcast.growth import GrowingManifest
from shardcast.http.intake import Intake, Manner
from shardcast.http.listing import Entry
from shardcast.http.news import News
from shardcast.http.peer import Peer
from shardcast.http.source import Source
from shardcast.manifest import Manifest
from shardcast.names import check_name
from shardcast.scores import Scores

_GRACE = 0.3
"""Seconds that further sources have for their lists once one has answered: who is away holds nobody up."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of a fetch.

    Attributes:
        name: Of the object.
        version: Its label.
        serial: Its place in the order of versions.
        manifest: Its manifest.
        size: Bytes of the object.
        bytes: Bytes that came over the network.
        resumed: Bytes that were there already.
        seconds: From the call to the finished file.
        per_source: Verified bytes by source.
        refused: Sources that were left, with the reason.
        given_up: Versions that could not be had before this one.
    """

    name: str
    version: str
    serial: int
    manifest: Manifest
    size: int
    bytes: int
    resumed: int
    seconds: float
    per_source: dict[str, int]
    refused: tuple[NodeError, ...]
    given_up: tuple[str, ...]

    @property
    def manifest_digest(self) -> builtins.bytes:
        """Names this very object to whoever announces it."""
        return self.manifest.digest


async def fetch_version(
    sources: Iterable[Source],
    into: Path,
    expect: Expect,
    name: str = "weights",
    *,
    newer_than: int = 0,
    parallel: int = limits.PARALLEL,
    silence: timedelta = limits.SILENCE,
    patience: timedelta = limits.PATIENCE,
    durable: bool = False,
    progress: Callable[[Progress], None] | None = None,
    begin: Callable[[GrowingManifest, Path], Watcher | None] | None = None,
    peer: Peer | None = None,
    scores: Scores | None = None,
) -> Fetched:
    """Bring the newest version, or the one that is expected, into a file; also while it is still being published.

    Shards come from several servers at once and each is verified before it is written. A server that lies is left,
    one that fails is asked less. What came stays beside `into` as ``.part``, and a later call goes on from there.

    Args:
        sources: Servers, origins or relays alike; some may be away.
        into: The file to make or replace.
        expect: What is believed: a publisher, a manifest digest, or both; a version, if only that one will do.
        name: Of the object.
        newer_than: The serial of the version that is there already.
        parallel: Connections over which shards come at once.
        silence: How long one source may bring nothing.
        patience: How long nothing at all may come before the call gives up.
        durable: Whether the finished file waits for the disk. Without that, a loss of power may cost it.
        progress: Called after every shard.
        peer: Serves what came of the file to others; in turn others that serve are asked as well.
        scores: What sources brought in earlier calls; kept by who calls again.
        begin: For who passes shards on: see :class:`shardcast.http.intake.Intake`.

    Raises:
        NodeError: SHC_NO_HOLDER, when nothing could be had for `patience`; SHC_MANIFEST, when everything that was
            offered is refused; SHC_ACCESS, when no server lets this client in; SHC_NAME, CFG_USAGE, STO_….
    """
    check_name(name)
    if expect.publisher is None and expect.manifest_digest is None:
        raise NodeError(
            Code.CFG_USAGE, "Nothing says whose versions are to be believed.",
            fix="Give the publisher's peer id, or the digest of one manifest.",
        )  # fmt: skip
    started = monotonic()
    refused: list[NodeError] = []
    tries: dict[str, int] = {}
    given_up: list[str] = []
    manner = Manner(
        parallel=parallel, silence=silence, patience=patience, durable=durable, progress=progress,
        scores=scores or Scores(),
        refuse=lambda url, error: refused.append(_said_of(error, url)),
    )  # fmt: skip
    fetched = 0
    async with News(sources, silence, peer.server.port if peer is not None else 0) as news:
        failure: NodeError | None = None
        if peer is not None and begin is None:
            begin = peer.begin
        while True:
            entry = await _choose(news, expect, name, newer_than, tries, patience, failure)
            intake = Intake(entry.identifier, name, into, expect, news, manner, begin, newer_than=newer_than)
            try:
                await _run(intake, entry.identifier, peer)
            except NodeError as error:
                fetched += intake.fetched
                if error.code not in (Code.SHC_NO_HOLDER, Code.SHC_MANIFEST):
                    raise
                failure = error
                lost = error.code is Code.SHC_MANIFEST
                tries[entry.identifier] = limits.TRIES if lost else tries.get(entry.identifier, 0) + 1
                if intake.verified:
                    tries[entry.identifier] = 1  # something came: it is worth going on
                if tries[entry.identifier] >= limits.TRIES:
                    given_up.append(entry.version)
                continue
            manifest = intake.growing.manifest()
            header = manifest.header
            if peer is not None:
                await peer.offer(manifest, into)
            return Fetched(
                name, header.version, header.serial, manifest, header.size, fetched + intake.fetched, intake.resumed,
                monotonic() - started, intake.verified, tuple(refused), tuple(given_up),
            )  # fmt: skip


async def _run(intake: Intake, identifier: str, peer: Peer | None) -> None:
    try:
        await intake.run()
    except BaseException:
        if peer is not None:
            peer.give_up(identifier)
        raise


async def read_manifest(
    sources: Iterable[Source], expect: Expect, name: str = "weights", *, patience: timedelta = limits.SILENCE
) -> Manifest:
    """The manifest of the newest version, or of the one that is expected.

    Raises:
        NodeError: As `fetch_version`.
    """
    check_name(name)
    async with News(sources, patience) as news:
        entry = await _choose(news, expect, name, 0, {}, patience, None)
        manner = Manner(patience=patience)
        return await Intake(entry.identifier, name, Path(), expect, news, manner).read()


async def read_list(sources: Iterable[Source], *, patience: timedelta = limits.SILENCE) -> list[Entry]:
    """Everything that the servers say they have, newest first.

    Raises:
        NodeError: Why none of them answers.
    """
    deadline = monotonic() + patience.total_seconds()
    async with News(sources, patience) as news:
        while not news.everyone_heard and monotonic() < deadline:
            await news.change(_GRACE)
        if len(news.failures) == len(news.sources):
            raise next(iter(news.failures.values()))
        return news.entries()


def _said_of(error: NodeError, url: str) -> NodeError:
    """The same error, said of a source."""
    return NodeError(error.code, error.sentence, fix=error.fix, peer=url)


async def _choose(
    news: News,
    expect: Expect,
    name: str,
    newer_than: int,
    tries: dict[str, int],
    patience: timedelta,
    failure: NodeError | None,
) -> Entry:
    """The best version that anyone has and that was not given up."""
    deadline = monotonic() + patience.total_seconds()
    grace: float | None = None
    while True:
        wanted = [
            entry
            for entry in news.entries()
            if entry.name == name
            and (expect.publisher is None or entry.author == expect.publisher)
            and (expect.version is None or entry.version == expect.version)
            and (entry.serial > newer_than)
        ]
        left = [entry for entry in wanted if tries.get(entry.identifier, 0) < limits.TRIES]
        now = monotonic()
        if left:
            grace = now + _GRACE if grace is None else grace
            if news.everyone_heard or now >= grace:
                return left[0]
        elif wanted and failure is not None and news.everyone_heard:
            raise failure  # each was tried often enough
        elif news.hopeless:
            raise next(iter(news.failures.values()))
        if now > deadline:
            if failure is not None:
                raise failure
            words = (
                "; ".join(f"{e.sentence}" for e in list(news.failures.values())[:5]) or "no server has one"
            )
            raise NodeError(Code.SHC_NO_HOLDER, f"No version of {name} can be had ({words})."[:600])
        await news.change(_GRACE if left else min(1.0, max(0.01, deadline - now)))
