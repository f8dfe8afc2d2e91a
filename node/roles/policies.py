"""Policy versions as a worker or a validator has them: told of by trainers, brought from servers, kept for a while."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
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


def label_of(version: int) -> str:
    """What a policy version is called among the versions of the object."""
    return f"v{version}"


@dataclass(frozen=True)
class Known:
    """A policy version that a trainer has told of.

    Attributes:
        version: Rounds behind it.
        weights: BLAKE3 of its file.
        beacon: From which seeds follow.
        publisher: Who signs its manifest.
        sources: Servers that have it.
    """

    version: int
    weights: Digest
    beacon: Digest
    publisher: PeerId
    sources: tuple[Source, ...]


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
        while True:
            told = False
            for trainer in list(self._trainers()):
                newest = self.newest
                with suppress(NodeError):
                    answer = await self._endpoint.request(
                        trainer, AskPolicies(newer_than=-1 if newest is None else newest.version)
                    )
                    told = await self._take(trainer, answer) or told
            if not told:
                await asyncio.sleep(_PAUSE.total_seconds())

    async def ask(self, trainer: PeerId) -> None:
        """Ask one trainer now.

        Raises:
            NodeError: It does not answer.
        """
        await self._take(trainer, await self._endpoint.request(trainer, AskPolicies()))

    async def _take(self, trainer: PeerId, answer: Policies) -> bool:
        if answer.anchor:
            self._anchors.setdefault((trainer, answer.chain), Digest(answer.anchor))
        sources = self._own or tuple(map(Source.parse, answer.sources))
        new = [each for each in answer.policies if each.version not in self._known]
        for each in new:
            self._known[each.version] = Known(
                each.version, Digest(each.weights), Digest(each.beacon), PeerId(answer.publisher), sources
            )
        for old in sorted(self._known)[: -4 * self._keep]:
            del self._known[old]
        if new:
            async with self._changed:
                self._changed.notify_all()
        return bool(new)

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
        """By the cheapest way where it is the newest version, else whole; the bytes that came."""
        newest, publisher = self.newest, known.publisher
        if newest is not None and newest.version == known.version:
            library, before = (
                Library(self._folder, publisher, NAME, keep=self._keep),
                self._serials.get(publisher, 0),
            )
            with suppress(NodeError):
                brought = await library.bring(known.sources, newer_than=before, patience=_PATIENCE)
                self._serials[publisher] = brought.serial
                if path.exists():
                    return brought.bytes
        into = path.with_suffix(".whole")
        expect = Expect(publisher=publisher, version=label_of(known.version))
        fetched = await fetch_version(known.sources, into, expect, NAME, patience=_PATIENCE)
        if fetched.manifest.result_digest != known.weights:
            into.unlink(missing_ok=True)
            raise NodeError(
                Code.RL_POLICY,
                f"Policy version {known.version} is published with other weights than certified.",
            )
        into.rename(path)
        return fetched.bytes
