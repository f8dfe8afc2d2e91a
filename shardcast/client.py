"""Fetching an object from many holders at once, believing none of them."""

import asyncio
import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.rpc import Endpoint
from protocol.units import PeerId
from shardcast import limits
from shardcast.draw import Drawing, Local, Progress
from shardcast.expect import Expect, Plan
from shardcast.grpc_carrier import GrpcCarrier
from shardcast.names import check_name
from shardcast.offers import offers
from shardcast.partial import PartFile, is_whole


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a holder was left.

    Attributes:
        peer: The holder.
        code: What kind of reason. SHC_BAD_SHARD and SHC_MANIFEST mean that it sent something wrong.
        sentence: In words.
    """

    peer: PeerId
    code: Code
    sentence: str

    @property
    def lied(self) -> bool:
        """Whether the holder sent something wrong, rather than failing to send."""
        return self.code in (Code.SHC_BAD_SHARD, Code.SHC_MANIFEST)


@dataclass(frozen=True, slots=True)
class FetchReport:
    """How a fetch went.

    Attributes:
        bytes: Content bytes that came over the network, wasted ones included.
        per_holder: Verified bytes by holder.
        seconds: From the call to the finished file.
        refused: Holders that were left, in order.
        resumed: Bytes that were there already.
        size: Of the object.
        manifest_digest: Of the manifest that held; None where shard hashes alone were expected.
    """

    bytes: int
    per_holder: dict[PeerId, int]
    seconds: float
    refused: tuple[Refusal, ...]
    resumed: int
    size: int
    manifest_digest: builtins.bytes | None


async def fetch(
    endpoint: Endpoint,
    name: str,
    holders: Sequence[PeerId],
    into: Path,
    expect: Expect,
    *,
    progress: Callable[[Progress], None] | None = None,
    parallel: int = limits.PARALLEL,
    silence: timedelta = limits.SILENCE,
    patience: timedelta = limits.PATIENCE,
) -> FetchReport:
    """Bring an object from its holders into a file.

    Shards are asked of `parallel` holders at once, of further ones where these fail or are slow; each is verified
    before it is written. A holder that lies is left at once, one that fails after three failures running, one that
    says nothing for `silence` counts as failed. The file appears under its name only when it is whole; until then it
    is `into` with `.part` behind, from which a later call goes on, also after a crash. Memory: one shard per holder.

    Args:
        endpoint: Whose connections are used.
        name: Of the object.
        holders: Who may have it, best first.
        into: The file to make or replace. If it already is the object, nothing is fetched.
        expect: What is believed.
        progress: Called after every shard, in the event loop.
        parallel: Holders drawn from at once.
        silence: The progress deadline of one holder.
        patience: How long the fetch as a whole may get nothing.

    Raises:
        NodeError: SHC_NO_HOLDER (retriable; what came is kept), when no holder is left or none sent anything for
            `patience`; SHC_MANIFEST, when everything that was offered is refused by `expect`; SHC_NAME; STO_FULL,
            STO_UNWRITABLE, STO_LOCKED.
    """
    started = monotonic()
    check_name(name)
    asked = tuple(dict.fromkeys(holders))[: limits.MAX_HOLDERS]
    refused: list[Refusal] = []
    fetched = 0
    per_holder: dict[PeerId, int] = {}

    def refuse(peer: str, error: NodeError) -> None:
        refused.append(Refusal(PeerId(peer), error.code, error.sentence))

    if (known := expect.known(name)) is not None:
        plans: list[tuple[Plan, tuple[PeerId, ...]]] = [(known, asked)]
    else:
        plans = await offers(
            endpoint, name, asked, expect, refuse, parallel=parallel, silence=silence, patience=patience
        )
    wrong: NodeError | None = None
    for plan, backers in plans:
        attempt = _Attempt(endpoint, into, plan, expect, refuse, progress, silence=silence, patience=patience)
        try:
            failure = await attempt.run(backers, parallel)
        finally:
            fetched += attempt.fetched
            for peer, size in attempt.verified.items():
                per_holder[PeerId(peer)] = per_holder.get(PeerId(peer), 0) + size
        if failure is None:
            seconds = monotonic() - started
            digest = plan.manifest_digest or None
            return FetchReport(
                fetched, per_holder, seconds, tuple(refused), attempt.resumed, plan.size, digest
            )
        if failure.code is Code.SHC_NO_HOLDER:
            why = "; ".join(f"{r.peer[-8:]}: {r.sentence}" for r in refused[-5:]) or "nobody was named"
            failure = NodeError(failure.code, f"{failure.sentence.removesuffix('.')} ({why})."[:600])
        else:
            for peer in backers:
                refuse(peer, failure)
        wrong = wrong or failure
    if wrong is None:
        lied = bool(refused) and all(refusal.lied for refusal in refused)
        why = "; ".join(f"{r.peer[-8:]}: {r.sentence}" for r in refused[-5:]) or "nobody was named"
        code = Code.SHC_MANIFEST if lied else Code.SHC_NO_HOLDER
        wrong = NodeError(code, f"{name} cannot be had ({why})."[:600])
    raise wrong


class _Attempt:
    """One plan tried: the part file opened, drawn full, checked, named."""

    def __init__(
        self,
        endpoint: Endpoint,
        into: Path,
        plan: Plan,
        expect: Expect,
        refuse: Callable[[str, NodeError], None],
        progress: Callable[[Progress], None] | None,
        *,
        silence: timedelta,
        patience: timedelta,
    ) -> None:
        self.fetched = self.resumed = 0
        self.verified: dict[str, int] = {}
        self._endpoint, self._into, self._plan, self._expect = endpoint, into, plan, expect
        self._refuse, self._progress = refuse, progress
        self._silence, self._patience = silence, patience

    async def run(self, holders: Sequence[PeerId], parallel: int) -> NodeError | None:
        """None if the file is there; else what speaks against this plan. Local failures are raised."""
        plan, expect = self._plan, self._expect
        if await asyncio.to_thread(_already, self._into, plan, expect):
            self.resumed = plan.size
            return None
        part = await asyncio.to_thread(PartFile, self._into, plan.size)
        try:
            there = await asyncio.to_thread(part.scan, plan.shards)
            self.resumed = sum(plan.shards[index].size for index in there)
            carrier = GrpcCarrier(self._endpoint, plan.name, plan.manifest_digest, self._silence)
            drawing = Drawing(
                carrier, plan.name, plan.size, part, self._refuse, self._progress, patience=self._patience
            )
            drawing.add(plan.shards, there)
            drawing.seal()
            try:
                await drawing.run(holders, parallel)
            except Local as local:
                raise local.error from local
            finally:
                self.fetched, self.verified = drawing.fetched, drawing.verified
            if drawing.left:
                what = f"{drawing.left} of {len(plan.shards)} shards of {plan.name} are missing"
                late = ": no holder sent anything for too long" if drawing.starved else ""
                return NodeError(Code.SHC_NO_HOLDER, f"{what}{late}.")
            try:
                right = await asyncio.to_thread(part.finish, plan.whole, expect.verify)
            except NodeError as error:
                if error.code is not Code.SHC_MANIFEST:
                    raise
                return error
            return (
                None if right else NodeError(Code.SHC_MANIFEST, f"What is offered as {plan.name} is not it.")
            )
        finally:
            part.close()


def _already(into: Path, plan: Plan, expect: Expect) -> bool:
    return is_whole(into, plan) and (expect.verify is None or expect.verify(into))
