"""One attempt's reduce at one member: own chunks are gathered, all others are collected from their owners.

The leader alone moves ownership. Before a chunk of a lost owner is reduced again the leader takes a signed copy from
whoever holds one; what is left goes to the other owners by a numbered, signed reassignment. A member that is not the
leader may end with chunks missing: the value names every chunk by hash, and named bytes can be had from any holder.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from diloco.reduce.checks import check_reduced
from diloco.reduce.contribution import Frozen
from diloco.reduce.evidence import basis_digest, basis_of
from diloco.reduce.gathering import Attempt, Gathering, Setting, _size, pull
from diloco.reduce.messages import Frame, Header, PullReduced, PullSigned
from diloco.rounds.statements import Move, Reassign
from diloco.rounds.values import ReducedChunk
from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.units import PeerId

_OWNER_PATIENCE = 3  # an owner may itself wait one progress deadline for a contributor before it can send
_PROGRESS_STEP = 0.05


@dataclass(frozen=True)
class Signed:
    """A reduced chunk with its owner's signature.

    Attributes:
        frame: Its bytes and header.
        digest: Its digest, as the header says.
        signer: Who signed the header.
    """

    frame: Frame
    digest: bytes
    signer: str


class Reduction:
    """The reduce of one attempt. Used from one event loop; ``start`` once, then ``close``.

    Args:
        setting: The member's setting.
        attempt: Which reduce.
        frozen: This member's contribution, if it has one.
        announce: Gives a reassignment to all members (the leader calls it).
        kept: Signed chunks of earlier attempts of the round that rest on the same basis.

    Attributes:
        basis: Digest of the attempt's basis.
        frames: Reduced chunks that are held, verified.
        named: Their bytes by digest.
        ended: Set when every chunk is held, or none comes any more.
        moved: When something last came, seconds of ``time.monotonic``.
    """

    def __init__(
        self,
        setting: Setting,
        attempt: Attempt,
        frozen: Frozen | None,
        announce: Callable[[Reassign], None],
        kept: Callable[[bytes], Iterable[Frame]] = lambda basis: (),
    ) -> None:
        self.attempt = attempt
        self._basis = basis_of(attempt.plan)
        self.basis = basis_digest(self._basis)
        self._kept = kept
        self._setting, self._frozen, self._announce = setting, frozen, announce
        self._owners = list(attempt.plan.owners)
        self._owned = [
            {owner} for owner in self._owners
        ]  # whoever owned a chunk at some time may have signed it
        self._ownership = 0
        self._working = False
        self._moves: dict[int, str] = {}
        self._lost: set[str] = set()
        self._headers: dict[int, Header] = {}
        self._signers: dict[int, str] = {}
        self.frames: dict[int, Frame] = {}
        self.named: dict[bytes, bytes] = {}
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._change = asyncio.Condition()
        self.ended = asyncio.Event()
        self._arrivals = 0
        self._said = 0.0
        self._began = monotonic()
        self.moved = self._began

    # ---- running

    def start(self) -> None:
        """Begin to gather and to collect; what an earlier attempt has signed is not reduced again (rule 7)."""
        if not self._owners:
            self.ended.set()
        elif self.attempt.attempt == 0:
            self._work_on(range(len(self._owners)))
        else:
            self._spawn(self._recall())

    async def _recall(self) -> None:
        """Take signed chunks of earlier attempts: this member's own, then, for what it is to reduce, others'."""
        for frame in self._kept(self.basis):
            with suppress(NodeError):
                self._take(frame, *self._verify(frame))
        me, leads = self._setting.me, self.attempt.leader == self._setting.me
        for peer in dict.fromkeys(self.attempt.plan.owners):
            missing = tuple(
                chunk
                for chunk, owner in enumerate(self._owners)
                if (leads or owner == me) and chunk not in self.frames
            )
            if missing and peer != me and not self._setting.gone(peer):
                await self._copies(peer, missing, PullSigned(basis=self.basis, chunks=missing))
        if self.frames:
            self._setting.note(
                "reduce.recalled",
                round=self.attempt.round,
                attempt=self.attempt.attempt,
                chunks=len(self.frames),
            )
        self._work_on(range(len(self._owners)))

    def _work_on(self, chunks: Mapping[int, str] | range) -> None:
        self._working = True
        by_owner: dict[str, list[int]] = {}
        for chunk in sorted(chunks):
            if chunk not in self.frames:
                by_owner.setdefault(self._owners[chunk], []).append(chunk)
        for owner, owned in by_owner.items():
            if owner == self._setting.me:
                gathering = Gathering(
                    self._setting,
                    self.attempt,
                    owned,
                    self._ownership,
                    self._frozen,
                    self._basis,
                    self._take,
                    self._arrived,
                )
                self._spawn(gathering.run())
            else:
                self._spawn(self._collect(owner, owned))

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._setting.note("reduce.failed", round=self.attempt.round, reason=repr(error))

    async def close(self) -> None:
        """Stop all work, and the answers that wait for it; frames that are held stay."""
        self._closed = True
        self.ended.set()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._wake()

    async def _collect(self, owner: str, chunks: list[int]) -> None:
        patience = self._setting.progress * _OWNER_PATIENCE

        def accept(frame: Frame) -> None:
            self._take(frame, *self._verify(frame))

        missing = await pull(self._setting, owner, self._request(wait=True), chunks, accept, patience)
        missing = [chunk for chunk in missing if chunk not in self.frames and self._owners[chunk] == owner]
        if not missing:
            return
        self._lost.add(owner)
        self._setting.note("owner.lost", peer=owner, round=self.attempt.round, chunks=len(missing))
        if self.attempt.leader == self._setting.me:
            await self._move_from(owner)

    def _request(self, *, wait: bool) -> Callable[[tuple[int, ...]], PullReduced]:
        attempt = self.attempt
        return lambda chunks: PullReduced(
            epoch=attempt.epoch, round=attempt.round, attempt=attempt.attempt, chunks=chunks, wait=wait
        )

    def _verify(self, frame: Frame) -> tuple[Header, str]:
        """Check a signature, place, hash, encoding and norm: what fails here would get no votes.

        A chunk of this attempt is its owner's. One of an earlier attempt is any owner's, on the same basis: the
        same contributors, weights and clip factors (rule 7).
        """
        if frame.chunk >= len(self._owners):
            raise NodeError(Code.RND_CHUNK, f"There is no chunk {frame.chunk}.")
        sealed = self._setting.unseal(frame.header)
        header, attempt = sealed.message, self.attempt
        place = (header.epoch, header.round, header.chunk, header.basis)
        if header.attempt == attempt.attempt:
            signers = self._owned[frame.chunk]
        else:
            signers = set(attempt.plan.owners) if header.attempt < attempt.attempt else set()
        if sealed.sender not in signers or place != (attempt.epoch, attempt.round, frame.chunk, self.basis):
            raise NodeError(
                Code.RND_CHUNK, f"The header of chunk {frame.chunk} is not its owner's.", peer=sealed.sender
            )
        if len(header.included) != (len(attempt.plan.roster) + 7) // 8:
            raise NodeError(
                Code.RND_CHUNK, f"The header of chunk {frame.chunk} has another roster.", peer=sealed.sender
            )
        entry = ReducedChunk(digest=header.digest, included=header.included)
        size = _size(self._setting.grid, frame.chunk)
        setting = self._setting
        check_reduced(frame.data, entry, frame.chunk, attempt.plan, setting.codec, size, setting.how)
        return header, sealed.sender

    def _take(self, frame: Frame, header: Header, signer: str = "") -> None:
        held = self.frames.get(frame.chunk)
        if held is not None:
            if self._headers[frame.chunk].digest != header.digest:
                self._setting.doubt(held.header, frame.header)
            return
        self._signers[frame.chunk] = signer or self._setting.me
        self.frames[frame.chunk] = frame
        self.named[header.digest] = frame.data
        self._headers[frame.chunk] = header
        self._progress()
        self._spawn(self._wake())
        if self.complete:
            self.ended.set()

    async def _wake(self) -> None:
        async with self._change:
            self._change.notify_all()

    def _arrived(self) -> None:
        self._arrivals += 1
        self._progress()

    def _progress(self) -> None:
        self.moved = monotonic()
        fraction = self.fraction
        if fraction >= self._said + _PROGRESS_STEP or fraction == 1.0:
            self._said = fraction
            self._setting.note(
                "reduce.progress",
                round=self.attempt.round,
                attempt=self.attempt.attempt,
                fraction=round(fraction, 3),
            )

    @property
    def signed(self) -> dict[int, Signed]:
        """The chunks that are held, with what their owners signed."""
        return {
            chunk: Signed(frame, self._headers[chunk].digest, self._signers[chunk])
            for chunk, frame in self.frames.items()
        }

    @property
    def complete(self) -> bool:
        """Whether every reduced chunk is held."""
        return len(self.frames) == len(self._owners)

    @property
    def fraction(self) -> float:
        """How much of what this member waits for has come: contributions to its chunks, and reduced chunks."""
        mine = sum(owner == self._setting.me for owner in self._owners)
        others = sum(entry.peer != self._setting.me for entry in self.attempt.plan.roster)
        whole = mine * others + len(self._owners)
        return min(1.0, (self._arrivals + len(self.frames)) / whole) if whole else 1.0

    @property
    def entries(self) -> tuple[ReducedChunk, ...]:
        """What a value says of the chunks; only once ``complete``."""
        return tuple(
            ReducedChunk(digest=self._headers[c].digest, included=self._headers[c].included)
            for c in range(len(self._owners))
        )

    # ---- moving ownership

    async def _move_from(self, owner: str) -> None:
        """Take signed copies of a lost owner's chunks from others, then give what is left to live owners."""
        missing = self._missing_of(owner)
        helpers = [
            entry.peer
            for entry in self.attempt.plan.roster
            if entry.peer not in self._lost
            and entry.peer != self._setting.me
            and not self._setting.gone(entry.peer)
        ]

        question = self._request(wait=False)(tuple(missing))
        await asyncio.gather(*(self._copies(peer, missing, question) for peer in helpers))
        missing = self._missing_of(owner)
        if not missing:
            return
        seats = [peer for peer in dict.fromkeys(self.attempt.plan.owners) if peer in helpers] or [
            self._setting.me
        ]
        if self._setting.me in self.attempt.plan.owners and self._setting.me not in seats:
            seats.append(self._setting.me)
        self._moves |= {chunk: seats[index % len(seats)] for index, chunk in enumerate(missing)}
        moves = tuple(Move(chunk=chunk, owner=self._moves[chunk]) for chunk in sorted(self._moves))
        attempt = self.attempt
        self._announce(
            Reassign(
                epoch=attempt.epoch, round=attempt.round, attempt=attempt.attempt,
                ownership=self._ownership + 1, moves=moves,
            )
        )  # fmt: skip

    def _missing_of(self, owner: str) -> list[int]:
        return [c for c, o in enumerate(self._owners) if o == owner and c not in self.frames]

    async def _copies(self, peer: str, chunks: Sequence[int], question: object) -> None:
        """Take what a peer holds of some chunks now."""
        wanted = set(chunks)
        try:
            stream = self._setting.streams.stream(PeerId(peer), question, progress=self._setting.progress)
            async with aclosing(stream) as frames:
                async for frame in frames:
                    if frame.chunk not in wanted:
                        raise NodeError(Code.RND_CHUNK, f"Chunk {frame.chunk} was not asked for.", peer=peer)
                    self._take(frame, *self._verify(frame))
                    wanted.remove(frame.chunk)
        except NodeError as error:
            self._setting.note("copies.refused", peer=peer, code=str(error.code), reason=error.sentence)

    def reassign(self, order: Reassign) -> None:
        """Follow a reassignment by the leader; older ones and those of other attempts are ignored."""
        if order.attempt != self.attempt.attempt or order.ownership <= self._ownership:
            return
        known = {entry.peer for entry in self.attempt.plan.roster}
        moves = {m.chunk: m.owner for m in order.moves if m.chunk < len(self._owners) and m.owner in known}
        changed = {chunk: owner for chunk, owner in moves.items() if self._owners[chunk] != owner}
        self._ownership = order.ownership
        for chunk, owner in changed.items():
            self._owners[chunk] = owner
            self._owned[chunk].add(owner)
        self._setting.note(
            "reduce.reassigned", round=self.attempt.round, attempt=self.attempt.attempt, chunks=len(changed)
        )
        if self._working:
            self._work_on(changed)

    # ---- serving

    async def serve(self, chunks: tuple[int, ...], *, wait: bool) -> AsyncGenerator[Frame, None]:
        """Reduced frames in the order asked; waits for those still being reduced, or skips them.

        Raises:
            NodeError: ``RND_CHUNK``: there is no such chunk; ``NET_TIMEOUT``: the reduce ended before it came.
        """
        for chunk in chunks:
            if chunk >= len(self._owners):
                raise NodeError(Code.RND_CHUNK, f"There is no chunk {chunk}.")
            if wait:
                async with self._change:
                    await self._change.wait_for(lambda chunk=chunk: chunk in self.frames or self._closed)  # type: ignore[misc]
            if chunk in self.frames:
                yield self.frames[chunk]
            elif wait:
                raise NodeError(Code.NET_TIMEOUT, f"Chunk {chunk} is not reduced here any more.")
