"""A state that differs from the quorum's is mended chunk by chunk (rule 12), and shown to those whose state differs.

The digest of a state is a tree over the chunk grid. Its leaves, which hash to the base that a quorum reports, say which
chunks differ; only these travel. Both sides work on the state in memory, of the same round.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import numpy as np
import numpy.typing as npt

from diloco import digest
from diloco.member.applying import Applied, Applying
from diloco.member.messages import AskLeaves, AskState, Leaves, StatePiece
from diloco.member.setting import Setting
from diloco.outer_state import OuterState
from protocol.errors import Code, NodeError
from protocol.rpc import Context
from protocol.units import PeerId

_PIECE = 1 << 20
_PER_MESSAGE = _PIECE // 32

_Floats = npt.NDArray[np.float32]


class Repairing:
    """Mends the outer state, and gives chunks of it to others.

    Args:
        setting: The member's setting.
        state: The outer state in memory.
        applying: Knows the digests of what is in it.
    """

    def __init__(self, setting: Setting, state: OuterState, applying: Applying) -> None:
        self._setting, self._state, self._applying = setting, state, applying
        setting.endpoint.handle(self.on_ask_leaves)
        setting.endpoint.handle(self.on_ask_state)

    # ---- mending

    async def repair(self, round_number: int, base: bytes, holders: Sequence[PeerId]) -> Applied:
        """Make the state in memory the one with digest ``base``. Never while workers train.

        Args:
            round_number: The round that starts from it; the state in memory has to be of this round.
            base: The digest that a quorum reports.
            holders: Members that may have that state, best first.

        Raises:
            NodeError: ``SHC_NO_HOLDER`` when no holder gave all that is missing; the state is as it was.
        """
        if self._state.round != round_number:
            raise NodeError(
                Code.SHC_NO_HOLDER,
                f"The state in memory is of round {self._state.round}, not {round_number}.",
            )
        ours = await asyncio.to_thread(
            digest.leaves, self._state.params, self._state.momentum, self._setting.grid
        )
        theirs: tuple[bytes, ...] | None = None
        wanted: list[int] = []
        got: dict[int, bytes] = {}
        givers: set[PeerId] = set()
        for peer in holders:
            try:
                if theirs is None:
                    theirs = await self._leaves_of(peer, round_number, base)
                    wanted = [chunk for chunk, leaf in enumerate(theirs) if leaf != ours[chunk]]
                missing = [chunk for chunk in wanted if chunk not in got]
                if missing:
                    givers.add(peer)
                    await self._fetch(peer, round_number, base, missing, theirs, got)
                if len(got) == len(wanted):
                    return await self._mend(round_number, base, got, givers)
            except NodeError as error:
                self._setting.emit("repair.refused", peer=peer, code=str(error.code), reason=error.sentence)
        raise NodeError(
            Code.SHC_NO_HOLDER, f"No member gave the chunks of round {round_number} that differ here."
        )

    async def _leaves_of(self, peer: PeerId, round_number: int, base: bytes) -> tuple[bytes, ...]:
        grid = self._setting.grid
        question, found = AskLeaves(round=round_number, base=base), bytearray()
        progress = self._setting.genesis.sections.deadline.progress
        async with aclosing(self._setting.endpoint.stream(peer, question, progress=progress)) as answers:
            async for part in answers:
                found += part.digests
                if len(found) > 32 * grid.count:
                    break
        leaves = tuple(bytes(found[at : at + 32]) for at in range(0, len(found), 32))
        if len(found) != 32 * grid.count or digest.digest_of_leaves(round_number, leaves, grid) != base:
            raise NodeError(
                Code.RND_CHUNK, "The digests of chunks that came are not those of the state.", peer=peer
            )
        return leaves

    async def _fetch(
        self,
        peer: PeerId,
        round_number: int,
        base: bytes,
        chunks: list[int],
        leaves: Sequence[bytes],
        got: dict[int, bytes],
    ) -> None:
        """Get chunks from one peer, each believed once its leaf is right."""
        grid = self._setting.grid
        question = AskState(round=round_number, base=base, chunks=tuple(chunks))
        progress = self._setting.genesis.sections.deadline.progress
        wanted = iter(chunks)
        chunk, data = next(wanted), bytearray()
        async with aclosing(self._setting.endpoint.stream(peer, question, progress=progress)) as pieces:
            async for piece in pieces:
                size = 8 * grid.length(chunk)
                if (piece.chunk, piece.offset) != (chunk, len(data)) or len(data) + len(piece.data) > size:
                    raise NodeError(Code.RND_CHUNK, "Chunks came that were not asked for.", peer=peer)
                data += piece.data
                if len(data) < size:
                    continue
                if digest.leaf(chunk, *_halves(data)) != leaves[chunk]:
                    raise NodeError(Code.RND_CHUNK, f"Chunk {chunk} of the state has wrong bytes.", peer=peer)
                got[chunk] = bytes(data)
                following = next(wanted, None)
                if following is None:
                    return
                chunk, data = following, bytearray()

    async def _mend(
        self, round_number: int, base: bytes, got: dict[int, bytes], givers: set[PeerId]
    ) -> Applied:
        applied = await asyncio.to_thread(self._applying.replace, got)
        if applied.digest != base:
            raise NodeError(
                Code.STO_CORRUPT, f"The mended state of round {round_number} is not the one others have."
            )
        self._setting.emit(
            "state.repaired", round=round_number, chunks=sorted(got), bytes=sum(map(len, got.values())),
            holders=sorted(givers), digest=applied.digest.hex(),
        )  # fmt: skip
        return applied

    # ---- giving

    def _check(self, round_number: int, base: bytes) -> Applied:
        described = self._applying.described
        if described is None or (described.round, described.digest) != (round_number, base):
            raise NodeError(Code.SHC_MISSING, f"The state of round {round_number} is not in memory here.")
        return described

    async def on_ask_leaves(self, message: AskLeaves, context: Context) -> AsyncIterator[Leaves]:
        """Give the digests of the chunks of the state in memory."""
        leaves = self._check(message.round, message.base).leaves
        for first in range(0, len(leaves), _PER_MESSAGE):
            yield Leaves(digests=b"".join(leaves[first : first + _PER_MESSAGE]))

    async def on_ask_state(self, message: AskState, context: Context) -> AsyncIterator[StatePiece]:
        """Give chunks of the state in memory, as long as it is that state."""
        grid = self._setting.grid
        for chunk in message.chunks:
            if chunk >= grid.count:
                raise NodeError(Code.WIRE_INVALID, f"There is no chunk {chunk}.")
            part = grid.slice(chunk)
            size = 4 * grid.length(chunk)
            for offset in range(0, 2 * size, _PIECE):
                # looked at before it is checked: an outer step that ends in between writes the other copy
                params, momentum = self._state.params[part], self._state.momentum[part]
                self._check(message.round, message.base)
                first = _bytes(params)[offset : offset + _PIECE]
                second = _bytes(momentum)[max(0, offset - size) : max(0, offset + _PIECE - size)]
                yield StatePiece(chunk=chunk, offset=offset, data=bytes(first) + bytes(second))


def _bytes(values: _Floats) -> memoryview:
    return np.ascontiguousarray(values, dtype="<f4").data.cast("B")


def _halves(data: bytes | bytearray) -> tuple[_Floats, _Floats]:
    """Parameters and momentum of one chunk."""
    values = np.frombuffer(data, dtype="<f4")
    return values[: values.size // 2], values[values.size // 2 :]
