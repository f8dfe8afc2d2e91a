"""Getting and checking every byte that a value names, and giving them to others.

What a member holds of the current round lives in memory, by digest, from whatever attempt; what it stored before a
vote and the rounds before are on disk.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, suppress
from datetime import timedelta

from blake3 import blake3

from diloco.member.setting import Setting
from diloco.reduce.checks import check_reduced
from diloco.reduce.contribution import Frozen
from diloco.reduce.messages import Frame, PullContribution, PullNamed, PullReduced, PullSigned
from diloco.reduce.reduction import Reduction, Signed
from diloco.rounds.roster import Plan
from diloco.rounds.values import Value
from diloco.store.ledger import Ledger
from diloco.store.reduced import ReducedStore
from protocol.errors import Code, NodeError
from protocol.rpc import Context
from protocol.units import PeerId

_POLL = 0.1


class Holding:
    """The bytes of rounds at one member.

    Attributes:
        frozen: This member's frozen contribution, while it may be pulled.
        frozen_for: The (epoch, round) for which it was promised.
        reduction: The reduce that runs or ran last in the current round.
        doubt: Takes two headers (envelope bytes) of one chunk whose digests differ.

    Args:
        setting: The member's setting.
        store: Reduced bytes on disk.
        ledger: Certified values, to find stored bytes by round.
    """

    def __init__(self, setting: Setting, store: ReducedStore, ledger: Ledger) -> None:
        self._setting, self.store, self._ledger = setting, store, ledger
        self.frozen: Frozen | None = None
        self.frozen_for = (0, -1)
        self.reduction: Reduction | None = None
        self.doubt: Callable[[bytes, bytes], None] = lambda one, other: None
        self._kept: dict[bytes, tuple[int, bytes]] = {}  # round and bytes of abandoned reduces, by digest
        self._signed: dict[
            tuple[bytes, int], tuple[int, Signed]
        ] = {}  # the same as signed, by basis and chunk
        self._decided: dict[tuple[int, bytes], bytes] = {}  # headers of the last value, by chunk and digest
        self._gathering: dict[bytes, tuple[int, asyncio.Lock]] = {}  # by what a value names
        self._change = asyncio.Condition()

    # ---- the current round

    async def begin(self, reduction: Reduction) -> None:
        """A reduce begins; those who already ask for its chunks are served."""
        await self.abandon()
        self.reduction = reduction
        reduction.start()
        async with self._change:
            self._change.notify_all()

    async def abandon(self) -> None:
        """Stop the running reduce; what it holds can still be asked for by name."""
        reduction = self.reduction
        self.reduction = None  # before anything is awaited: another may begin meanwhile
        if reduction is not None:
            number = reduction.attempt.round
            self._kept |= {digest: (number, data) for digest, data in reduction.named.items()}
            for chunk, signed in reduction.signed.items():
                self._signed[reduction.basis, chunk] = number, signed
            await reduction.close()

    async def settle(self, round_number: int) -> None:
        """Forget the bytes of a decided round in memory; those of its value are on disk."""
        if self.reduction is not None and self.reduction.attempt.round <= round_number:
            await self.abandon()
        self._kept = {digest: kept for digest, kept in self._kept.items() if kept[0] > round_number}
        self._signed = {place: kept for place, kept in self._signed.items() if kept[0] > round_number}
        self._gathering = {named: it for named, it in self._gathering.items() if it[0] > round_number}

    def signed(self, basis: bytes) -> dict[int, Frame]:
        """The reduced chunks on a basis that are held with their owners' signatures, from whatever attempt."""
        held = {chunk: kept.frame for (of, chunk), (_, kept) in self._signed.items() if of == basis}
        if self.reduction is not None and self.reduction.basis == basis:
            held |= self.reduction.frames
        return held

    def signatures(self, value: Value) -> dict[int, Signed]:
        """The chunks that a value names as their owners signed them, as far as they came here; before ``settle``."""
        named = {(chunk, entry.digest) for chunk, entry in enumerate(value.chunks)}
        found = {chunk: kept for chunk, kept in self._all_signed() if (chunk, kept.digest) in named}
        self._decided = {(chunk, kept.digest): kept.frame.header for chunk, kept in found.items()}
        return found

    def _all_signed(self) -> list[tuple[int, Signed]]:
        held = [(chunk, kept) for (_, chunk), (_, kept) in self._signed.items()]
        if self.reduction is not None:
            held += self.reduction.signed.items()
        return held

    def _named(self, digest: bytes) -> bytes | None:
        if self.reduction is not None and (data := self.reduction.named.get(digest)) is not None:
            return data
        return self._kept[digest][1] if digest in self._kept else None

    def missing(self, value: Value) -> list[int]:
        """Chunks of a value whose bytes are not in memory here."""
        return [chunk for chunk, entry in enumerate(value.chunks) if self._named(entry.digest) is None]

    def keep(self, round_number: int, chunks: Iterable[bytes]) -> None:
        """Hold reduced chunks of a round, by digest, until the round is decided."""
        self._kept |= {blake3(data).digest(): (round_number, data) for data in chunks}

    async def gather(self, value: Value, plan: Plan | None, holders: list[PeerId]) -> list[bytes]:
        """Every chunk that a value names, checked and durable on disk.

        Args:
            value: The value.
            plan: What it was recomputed from, for the norm check; None checks hashes and encoding only.
            holders: Who may have the bytes, best first.

        Raises:
            NodeError: ``SHC_NO_HOLDER`` when a chunk cannot be had, ``RND_CHUNK`` when a check fails, ``STO_…``.
        """
        if not value.chunks:
            return []
        if len(value.chunks) != self._setting.grid.count:
            raise NodeError(
                Code.RND_CHAIN, f"The value of round {value.round} names {len(value.chunks)} chunks."
            )
        named = b"".join(entry.digest for entry in value.chunks)
        _, alone = self._gathering.setdefault(named, (value.round, asyncio.Lock()))
        async with alone:  # to vote and to apply: the second finds them on disk
            return await self._gather(value, plan, holders)

    async def _gather(self, value: Value, plan: Plan | None, holders: list[PeerId]) -> list[bytes]:
        if self.store.has(value):
            return await asyncio.to_thread(self.store.read, value)
        data: dict[int, bytes] = {}
        turn = 0
        asked_all = 0
        while True:
            for chunk, entry in enumerate(value.chunks):
                if chunk not in data and (found := self._named(entry.digest)) is not None:
                    data[chunk] = found
            missing = [chunk for chunk in range(len(value.chunks)) if chunk not in data]
            if not missing:
                break
            reduction = self.reduction
            quiet = self._setting.genesis.sections.deadline.progress.total_seconds() / 4
            if reduction is not None and not self._is_of(reduction, value):
                reduction = None  # this member is behind: what moves now is of a later round
            if reduction is not None and self._setting.clock() - reduction.moved < quiet:
                await asyncio.sleep(_POLL)  # it is still coming from its owners
                continue
            if not holders or asked_all >= 3:
                raise NodeError(
                    Code.SHC_NO_HOLDER, f"{len(missing)} chunks of round {value.round} cannot be had."
                )
            before = len(data)
            await self._ask(holders[turn % len(holders)], value, missing, data)
            turn += 1
            if len(data) == before and turn % len(holders) == 0:
                asked_all += 1
                await asyncio.sleep(_POLL * 5 * random.random())
        ordered = [data[chunk] for chunk in range(len(value.chunks))]
        await asyncio.to_thread(self._check_and_store, value, plan, ordered)
        return ordered

    @staticmethod
    def _is_of(reduction: Reduction, value: Value) -> bool:
        return (reduction.attempt.epoch, reduction.attempt.round) == (value.epoch, value.round)

    def _check_and_store(self, value: Value, plan: Plan | None, data: list[bytes]) -> None:
        for chunk, (entry, part) in enumerate(zip(value.chunks, data, strict=True)):
            size = self._setting.rules.chunk_sizes[chunk]
            rules = self._setting.rules
            check_reduced(part, entry, chunk, plan, self._setting.codec, size, rules.aggregation)
        self.store.write(value.epoch, value.round, value.chunks, data)

    async def _ask(self, peer: PeerId, value: Value, missing: list[int], data: dict[int, bytes]) -> None:
        question = PullNamed(
            epoch=value.epoch, round=value.round, chunks=tuple(missing),
            digests=tuple(value.chunks[chunk].digest for chunk in missing),
        )  # fmt: skip
        progress = self._setting.genesis.sections.deadline.progress
        wanted = set(missing)
        others = dict(self._all_signed())  # what came of these chunks is not what the value names
        try:
            async with aclosing(self._setting.endpoint.stream(peer, question, progress=progress)) as frames:
                async for frame in frames:
                    known = frame.chunk in wanted
                    if not known or blake3(frame.data).digest() != value.chunks[frame.chunk].digest:
                        raise NodeError(
                            Code.RND_CHUNK, f"Chunk {frame.chunk} is not what was asked for.", peer=peer
                        )
                    data[frame.chunk] = frame.data
                    wanted.remove(frame.chunk)
                    if frame.header and frame.chunk in others:
                        self.doubt(others[frame.chunk].frame.header, frame.header)
        except NodeError as error:
            self._setting.emit("bytes.refused", peer=peer, round=value.round, reason=error.sentence)

    # ---- serving

    async def on_pull_contribution(self, message: PullContribution, context: Context) -> AsyncIterator[Frame]:
        """Stream chunks of the frozen contribution."""
        frozen = self.frozen
        if frozen is None or self.frozen_for != (message.epoch, message.round):
            raise NodeError(Code.RND_CHUNK, f"There is no contribution to round {message.round} here.")
        for chunk in message.chunks:
            if chunk >= len(frozen.chunks):
                raise NodeError(Code.RND_CHUNK, f"There is no chunk {chunk}.")
            yield frozen.frame(chunk)

    async def on_pull_reduced(self, message: PullReduced, context: Context) -> AsyncIterator[Frame]:
        """Stream reduced chunks of a running attempt; one that has not begun here is waited for a little."""
        wanted = (message.epoch, message.round, message.attempt)

        def running() -> Reduction | None:
            here = self.reduction
            if here is None:
                return None
            return here if (here.attempt.epoch, here.attempt.round, here.attempt.attempt) == wanted else None

        patience: timedelta = self._setting.genesis.sections.deadline.progress
        if running() is None and message.wait:
            async with self._change:
                try:
                    async with asyncio.timeout(patience.total_seconds()):
                        await self._change.wait_for(lambda: running() is not None)
                except TimeoutError:
                    pass
        reduction = running()
        if reduction is None:
            raise NodeError(
                Code.NET_TIMEOUT, f"Attempt {message.attempt} of round {message.round} does not run here."
            )
        async with aclosing(reduction.serve(message.chunks, wait=message.wait)) as frames:
            async for frame in frames:
                yield frame

    async def on_pull_signed(self, message: PullSigned, context: Context) -> AsyncIterator[Frame]:
        """Stream reduced chunks on a basis with their signatures; skip what is not here."""
        held = self.signed(message.basis)
        for chunk in message.chunks:
            if chunk in held:
                yield held[chunk]

    async def on_pull_named(self, message: PullNamed, context: Context) -> AsyncIterator[Frame]:
        """Stream reduced chunks by digest, from memory or disk; skip what is not here."""
        if len(message.digests) != len(message.chunks):
            raise NodeError(Code.WIRE_INVALID, "There are not as many digests as chunks.")
        certified = self._ledger.get(message.round)
        stored = certified.value if certified is not None and self.store.has(certified.value) else None
        headers = self._decided | {
            (chunk, kept.digest): kept.frame.header for chunk, kept in self._all_signed()
        }
        for chunk, digest in zip(message.chunks, message.digests, strict=True):
            data = self._named(digest)
            known = (
                stored is not None and chunk < len(stored.chunks) and stored.chunks[chunk].digest == digest
            )
            if data is None and stored is not None and known:
                with suppress(OSError):  # pruned meanwhile
                    data = await asyncio.to_thread(self.store.chunk, stored, chunk)
            if data is not None:
                yield Frame(chunk=chunk, data=data, header=headers.get((chunk, digest), b""))
