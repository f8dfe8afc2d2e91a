"""Policy versions as a worker or a validator has them: told of by trainers, brought from servers, kept for a while."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from time import process_time

from diloco.member.setting import Emit
from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.files import storage_error
from protocol.keeping import keep_running
from protocol.rpc import Endpoint
from protocol.units import Digest, PeerId
from rl.messages import AskPolicies, Policies, Policy
from shardcast.expect import Expect
from shardcast.http.fetching import fetch_version
from shardcast.http.source import Source
from shardcast.http.versions import Library

NAME = "policy"
"""The name of the object whose versions are the policy's."""

_PAUSE = timedelta(seconds=1)
_PATIENCE = timedelta(seconds=30)
_HASTE = timedelta(seconds=5)
"""Patience with servers from which nothing comes, while another trainer's may have the same version."""
_MOST_WAYS = 8


def label_of(version: int) -> str:
    """What a policy version is called among the versions of the object."""
    return f"v{version}"


@dataclass(frozen=True)
class Way:
    """Where a version is to be had.

    Attributes:
        publisher: Who signs its manifest there.
        sources: Servers.
    """

    publisher: PeerId
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Known:
    """A policy version that trainers have told of.

    Attributes:
        version: Rounds behind it.
        weights: Digest of its file.
        beacon: From which seeds follow.
        ways: Where it is to be had, one for each trainer that told of it.
    """

    version: int
    weights: Digest
    beacon: Digest
    ways: tuple[Way, ...]


class PolicyFollower:
    """Hears of the policy's versions and brings them.

    All trainers certify the same versions, so whoever tells, the weights are believed for the digest alone, and a
    trainer that tells another digest than the others is told so.

    Args:
        endpoint: To ask trainers.
        trainers: Those that are there now.
        folder: Where files lie.
        sources: Servers of this node's own choice; empty for those that trainers name.
        keep: Versions that stay on disk.
        emit: The event log.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        trainers: Callable[[], Iterable[PeerId]],
        folder: Path,
        sources: tuple[str, ...],
        keep: int,
        emit: Emit,
    ) -> None:
        self._endpoint, self._trainers, self._folder, self._emit = endpoint, trainers, folder, emit
        self._own = tuple(map(Source.parse, sources))
        self._keep = keep
        self._known: dict[int, Known] = {}
        self._anchors: dict[tuple[PeerId, int], Digest] = {}
        self._serials: dict[PeerId, int] = {}
        self._heard: dict[PeerId, int] = {}
        self._changed = asyncio.Condition()
        self._bringing = asyncio.Lock()

    @property
    def newest(self) -> Known | None:
        """The newest version that a trainer has told of."""
        return self._known[max(self._known)] if self._known else None

    def anchor(self, trainer: PeerId, chain: int) -> Digest | None:
        """Link 0 of an audit chain of a trainer's, as it was first told."""
        return self._anchors.get((trainer, chain))

    async def run(self) -> None:
        """Ask trainers for new versions until cancelled."""
        await keep_running(
            self._run, lambda error: self._emit("task.failed", task="policies", reason=str(error))
        )

    async def _run(self) -> None:
        """Have one question open with each trainer: one that hangs keeps nobody from hearing the others."""
        asking: dict[PeerId, asyncio.Task[None]] = {}
        try:
            while True:
                for trainer in self._trainers():
                    if trainer not in asking or asking[trainer].done():
                        asking[trainer] = asyncio.ensure_future(self._listen(trainer))
                open_now = [task for task in asking.values() if not task.done()]
                pause = asyncio.ensure_future(asyncio.sleep(_PAUSE.total_seconds()))
                await asyncio.wait([*open_now, pause], return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
                for trainer in [trainer for trainer, task in asking.items() if task.done()]:
                    asking.pop(trainer).result()
        finally:
            for task in asking.values():
                task.cancel()
            await asyncio.gather(*asking.values(), return_exceptions=True)

    async def _listen(self, trainer: PeerId) -> None:
        """One question to one trainer; who has nothing new is asked again after a pause."""
        before = self._heard.get(trainer, -1)
        with suppress(NodeError):
            answer = await self._endpoint.request(trainer, AskPolicies(newer_than=before))
            await self._take(trainer, answer)
            self._heard[trainer] = max((each.version for each in answer.policies), default=before)
            if self._heard[trainer] > before:
                return
        await asyncio.sleep(_PAUSE.total_seconds())

    async def ask(self, trainer: PeerId) -> None:
        """Ask one trainer now.

        Raises:
            NodeError: It does not answer.
        """
        await self._take(trainer, await self._endpoint.request(trainer, AskPolicies()))

    async def _take(self, trainer: PeerId, answer: Policies) -> None:
        if answer.anchor:
            self._anchors.setdefault((trainer, answer.chain), Digest(answer.anchor))
        way = Way(PeerId(answer.publisher), self._own or tuple(map(Source.parse, answer.sources)))
        new = False
        for each in answer.policies:
            held = self._known.get(each.version)
            if held is None:
                new = True
                weights, beacon = Digest(each.weights), Digest(each.beacon)
                self._known[each.version] = Known(each.version, weights, beacon, (way,))
            elif self.known(each) and way not in held.ways and len(held.ways) < _MOST_WAYS:
                self._known[each.version] = replace(held, ways=(*held.ways, way))
        for old in sorted(self._known)[: -4 * self._keep]:
            del self._known[old]
        if new:
            async with self._changed:
                self._changed.notify_all()

    def known(self, policy: Policy) -> bool:
        """Whether a version is one that this node has heard of, with the same weights and beacon."""
        held = self._known.get(policy.version)
        return held is not None and (held.weights, held.beacon) == (policy.weights, policy.beacon)

    async def after(self, version: int) -> Known:
        """The newest version, once it is newer than this."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.newest is not None and self.newest.version > version)
        assert self.newest is not None
        return self.newest

    async def told(self, version: int, patience: timedelta) -> Known:
        """What is known of a version.

        Raises:
            NodeError: RL_POLICY when no trainer tells of it in time.
        """
        try:
            async with asyncio.timeout(patience.total_seconds()), self._changed:
                await self._changed.wait_for(lambda: version in self._known)
        except TimeoutError:
            raise NodeError(Code.RL_POLICY, f"No trainer tells of policy version {version}.") from None
        return self._known[version]

    async def bring(self, known: Known) -> Path:
        """The file of a version, fetched unless it is here.

        Raises:
            NodeError: SHC_… when nobody has it; RL_POLICY when its bytes are others; STO_….
        """
        path = self._folder / known.weights.hex()
        async with self._bringing:
            if path.exists():
                return path
            began, used = monotonic(), process_time()
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise storage_error(error, self._folder) from error
            size = await self._fetch(known, path)
            self._emit(
                "policy.brought", version=known.version, bytes=size, seconds=monotonic() - began,
                cpu=process_time() - used, digest=known.weights.hex(),
            )  # fmt: skip
            return path

    async def _fetch(self, known: Known, path: Path) -> int:
        """From the first trainer's servers that have it; the bytes that came.

        Raises:
            NodeError: As ``bring``, for the last way that was tried.
        """
        failed = NodeError(Code.RL_POLICY, f"No trainer tells where policy version {known.version} is.")
        for way in known.ways:
            try:
                return await self._fetch_from(
                    way, known, path, _PATIENCE if way is known.ways[-1] else _HASTE
                )
            except NodeError as error:
                failed = error
        raise failed

    async def _fetch_from(self, way: Way, known: Known, path: Path, patience: timedelta) -> int:
        """By the cheapest way where it is the newest version, else whole; the bytes that came."""
        newest, publisher = self.newest, way.publisher
        if newest is not None and newest.version == known.version:
            library, before = (
                Library(self._folder, publisher, NAME, keep=self._keep),
                self._serials.get(publisher, 0),
            )
            with suppress(NodeError):
                brought = await library.bring(way.sources, newer_than=before, patience=patience)
                self._serials[publisher] = brought.serial
                if path.exists():
                    return brought.bytes
        into = path.with_suffix(".whole")
        expect = Expect(publisher=publisher, version=label_of(known.version))
        fetched = await fetch_version(way.sources, into, expect, NAME, patience=patience)
        if fetched.manifest.result_digest != known.weights:
            into.unlink(missing_ok=True)
            raise NodeError(
                Code.RL_POLICY,
                f"Policy version {known.version} is published with other weights than certified.",
            )
        into.rename(path)
        return fetched.bytes
