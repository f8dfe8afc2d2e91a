"""What the owner of some chunks does: pull them from every contributor, average in roster order, encode once, sign."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from blake3 import blake3

from diloco.aggregate import Aggregation, reduce_chunk
from diloco.codec import Codec
from diloco.layout import Grid
from diloco.reduce.checks import check_contribution
from diloco.reduce.contribution import Frozen
from diloco.reduce.evidence import Court, basis_digest, judge, statement_digest
from diloco.reduce.messages import Exhibit, Frame, Header, PullContribution
from diloco.rounds.roster import Plan, bitmap
from protocol.clock import monotonic
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from protocol.units import PeerId

RETRY = timedelta(milliseconds=300)
"""Pause before a broken pull is tried again."""

_REFUSALS = {Code.RND_CHUNK, Code.TRN_CODEC, Code.WIRE_MALFORMED, Code.WIRE_INVALID, Code.WIRE_TOO_LARGE}

Note = Callable[..., None]


class Streams(Protocol):
    """The part of an endpoint that a reduce needs."""

    def stream(self, peer: PeerId, request: object, *, progress: timedelta) -> AsyncGenerator[Frame, None]:
        """Reply frames of a bulk request; a ``NodeError`` when the peer moves nothing for ``progress``."""
        ...


@dataclass(frozen=True)
class Setting:
    """What stays the same over all reduces of a member.

    Attributes:
        me: This member.
        grid: The run's chunk grid.
        codec: The run's codec.
        how: The run's aggregation.
        streams: How to pull.
        seal: Signs a header as a statement.
        unseal: Verifies a header's envelope.
        progress: A pull that moves nothing for so long is given up.
        gone: Whether a peer is believed dead.
        note: Writes an event.
        measured: Takes the bytes and seconds of a pull from a contributor.
        court: Judges what a contributor sent.
        keep: Keeps exhibits of what this member averaged; takes a round, its header's digest, a chunk and the exhibits.
        accuse: Takes a round, a liar and the exhibits that show it.
        doubt: Takes two headers (envelope bytes) of one chunk whose digests differ.
    """

    me: str
    grid: Grid
    codec: Codec
    how: Aggregation
    streams: Streams
    seal: Callable[[Header], Sealed[Header]]
    unseal: Callable[[bytes], Sealed[Header]]
    progress: timedelta
    gone: Callable[[str], bool]
    note: Note
    measured: Callable[[str, int, float], None]
    court: Court
    keep: Callable[[int, bytes, int, Sequence[Exhibit]], None]
    accuse: Callable[[int, str, Sequence[Exhibit]], None]
    doubt: Callable[[bytes, bytes], None]


@dataclass(frozen=True)
class Attempt:
    """Which reduce it is.

    Attributes:
        epoch: Epoch of the round.
        round: The round.
        attempt: The attempt.
        leader: Who leads it.
        plan: Roster and partition.
        patience: Seconds in which a contributor without a vote has to send its chunks; None for no bound.
        envelopes: The Readys of the roster as they were signed, as far as they are here.
    """

    epoch: int
    round: int
    attempt: int
    leader: str
    plan: Plan
    patience: float | None = None
    envelopes: Mapping[str, bytes] = field(default_factory=dict)


async def pull(
    setting: Setting,
    peer: str,
    request: Callable[[tuple[int, ...]], object],
    chunks: Sequence[int],
    accept: Callable[[Frame], None],
    patience: timedelta,
) -> list[int]:
    """Pull chunks in order from one peer, again after a break, until it is silent for ``patience``.

    Args:
        setting: The member's setting.
        peer: Whom to ask.
        request: Makes the request for the chunks that are still missing.
        chunks: Which chunks, in the order they are to come.
        accept: Takes a frame; raises ``NodeError`` to refuse it and everything after it.
        patience: How long without a frame is too long; an unreachable peer is given up after half of it.

    Returns:
        The chunks that did not come.
    """
    missing = list(chunks)
    moved = monotonic()
    while missing:
        try:
            stream = setting.streams.stream(PeerId(peer), request(tuple(missing)), progress=patience)
            async with aclosing(stream) as frames:
                async for frame in frames:
                    if not missing or frame.chunk != missing[0]:
                        raise NodeError(Code.RND_CHUNK, f"Chunk {frame.chunk} came out of turn.", peer=peer)
                    accept(frame)
                    missing.pop(0)
                    moved = monotonic()
        except NodeError as error:
            silent = monotonic() - moved
            limit = patience.total_seconds() / (2 if error.code == Code.NET_UNREACHABLE else 1)
            if error.code in _REFUSALS:
                setting.note("chunk.refused", peer=peer, code=str(error.code), reason=error.sentence)
                break
            if setting.gone(peer) or silent >= limit:
                break
            await asyncio.sleep(RETRY.total_seconds())
        else:
            break  # the peer said that it has no more
    return missing


class Gathering:
    """The owner's work on a run of chunks in one attempt.

    Args:
        setting: The member's setting.
        attempt: Which reduce.
        chunks: The chunks owned, in order.
        ownership: Number of the reassignment under which they are owned.
        frozen: This member's own contribution, if it has one.
        basis: The encoded basis of the attempt's plan.
        done: Called with each finished frame.
        arrived: Called once for each contribution chunk that came.
    """

    def __init__(
        self,
        setting: Setting,
        attempt: Attempt,
        chunks: Sequence[int],
        ownership: int,
        frozen: Frozen | None,
        basis: bytes,
        done: Callable[[Frame, Header], None],
        arrived: Callable[[], None],
    ) -> None:
        self._setting, self._attempt, self._chunks = setting, attempt, tuple(chunks)
        self._ownership, self._frozen, self._basis = ownership, frozen, basis
        self._done, self._arrived = done, arrived
        self._frames: dict[tuple[int, int], Frame] = {}
        self._settled: set[int] = set()
        self._change = asyncio.Event()

    async def run(self) -> None:
        """Gather and reduce all chunks; ends when each has been given to ``done``."""
        async with asyncio.TaskGroup() as group:
            for position, entry in enumerate(self._attempt.plan.roster):
                if entry.peer == self._setting.me and self._frozen is not None:
                    for chunk in self._chunks:
                        self._frames[chunk, position] = self._frozen.frame(chunk)
                    self._settled.add(position)
                else:
                    group.create_task(self._pull_from(position, entry.peer))
            for chunk in self._chunks:
                await self._until_gathered(chunk)
                await self._reduce(chunk)

    async def _pull_from(self, position: int, peer: str) -> None:
        attempt, setting = self._attempt, self._setting
        ready = attempt.plan.readys[peer]
        missing = set(self._chunks)
        began, came = monotonic(), 0

        def accept(frame: Frame) -> None:
            nonlocal came
            size = _size(setting.grid, frame.chunk)
            count, norm = setting.grid.count, ready.norms[frame.chunk]
            try:
                check_contribution(frame, ready.commitment, norm, count, setting.codec, size)
            except NodeError:
                self._accuse(peer, frame)
                raise
            self._frames[frame.chunk, position] = frame
            missing.remove(frame.chunk)
            came += len(frame.data)
            self._arrived()
            self._change.set()

        def request(chunks: tuple[int, ...]) -> PullContribution:
            return PullContribution(epoch=attempt.epoch, round=attempt.round, chunks=chunks)

        with suppress(TimeoutError):  # voters are trusted not to hold up a round, others cannot
            async with asyncio.timeout(None if peer in attempt.plan.owners else attempt.patience):
                await pull(setting, peer, request, self._chunks, accept, setting.progress)
        setting.measured(peer, came, monotonic() - began)
        if missing:
            setting.note("contributor.lost", peer=peer, round=attempt.round, chunks=len(missing))
        self._settled.add(position)
        self._change.set()

    async def _until_gathered(self, chunk: int) -> None:
        positions = range(len(self._attempt.plan.roster))
        while any((chunk, p) not in self._frames and p not in self._settled for p in positions):
            self._change.clear()
            await self._change.wait()

    async def _reduce(self, chunk: int) -> None:
        roster = self._attempt.plan.roster
        held = {p: self._frames.pop((chunk, p)) for p in range(len(roster)) if (chunk, p) in self._frames}
        if not held:
            return  # nobody could give this chunk: the attempt cannot complete and its timer ends it
        size = _size(self._setting.grid, chunk)
        data = await asyncio.to_thread(self._aggregate, {p: frame.data for p, frame in held.items()}, size)
        header = Header(
            epoch=self._attempt.epoch,
            round=self._attempt.round,
            attempt=self._attempt.attempt,
            ownership=self._ownership,
            chunk=chunk,
            included=bitmap(sorted(held), len(roster)),
            digest=blake3(data).digest(),
            basis=basis_digest(self._basis),
        )
        raw = self._setting.seal(header).raw
        await asyncio.to_thread(self._keep, chunk, raw, [held[position] for position in sorted(held)])
        self._done(Frame(chunk=chunk, data=data, header=raw), header)

    def _keep(self, chunk: int, header: bytes, used: Sequence[Frame]) -> None:
        """What this member averaged is on disk before anyone has the result, so that it can show it."""
        exhibits = [Exhibit(statement=header, basis=self._basis), *(_exhibit(frame) for frame in used)]
        try:
            self._setting.keep(self._attempt.round, statement_digest(header), chunk, exhibits)
        except NodeError as error:  # it will not be able to show it, which costs less than the round
            self._setting.note("audit.not-kept", code=str(error.code), reason=error.sentence)

    def _accuse(self, peer: str, frame: Frame) -> None:
        """Where the sender's own Ready shows that it lied, that is evidence; anyone can send bytes of nobody's."""
        ready = self._attempt.envelopes.get(peer)
        if ready is None:
            return
        exhibits = [Exhibit(statement=ready), _exhibit(frame)]
        try:
            liar = judge(self._setting.court, exhibits)
        except NodeError:
            return
        if liar is not None:
            self._setting.accuse(self._attempt.round, liar, exhibits)

    def _aggregate(self, held: dict[int, bytes], size: int) -> bytes:
        order = sorted(held)
        entries = [self._attempt.plan.roster[position] for position in order]
        return reduce_chunk(
            self._setting.codec,
            [held[position] for position in order],
            [entry.weight for entry in entries],
            size,
            clips=[entry.clip for entry in entries],
            how=self._setting.how,
        )


def _exhibit(frame: Frame) -> Exhibit:
    return Exhibit(chunk=frame.chunk, data=frame.data, proof=frame.proof)


def _size(grid: Grid, chunk: int) -> int:
    part = grid.slice(chunk)
    return int(part.stop - part.start)
