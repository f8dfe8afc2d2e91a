"""Finding the state of the next round: a checkpoint whose digest is certified, and the reduced bytes since.

The same way serves a restart (everything is on disk), a damaged newest checkpoint (the one before), a returner (only
reduced bytes are fetched) and a joiner (checkpoint and reduced bytes come from several members, as shards).
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from diloco.creation import initial_parameters_of
from diloco.layout import Grid
from diloco.member.applying import Applied, Applying
from diloco.member.setting import Setting
from diloco.outer_state import OuterState
from diloco.rounds.values import Value
from diloco.store.checkpoints import Checkpoints
from diloco.store.ledger import Ledger
from diloco.store.reduced import ReducedStore
from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.units import PeerId
from shardcast.building import build_manifest
from shardcast.client import fetch
from shardcast.expect import Expect
from shardcast.messages import AskList
from shardcast.shelf import Shelf

CHECKPOINTS_KEPT = 2

FULL_TRANSFER = 8
"""From so many missed rounds on a checkpoint, 8 bytes per parameter, is less than the reduced bytes of the rounds."""


def checkpoint_name(round_number: int) -> str:
    """Name under which members serve a checkpoint."""
    return f"checkpoint/{round_number:08d}"


def reduced_name(epoch: int, round_number: int) -> str:
    """Name under which members serve the reduced bytes of a round."""
    return f"reduced/{epoch}/{round_number:08d}"


class Restoring:
    """Restores the outer state up to a certified value, and offers to others what it needs for that.

    Args:
        setting: The member's setting.
        state: The outer state.
        applying: Takes outer steps.
        ledger: Certified values.
        checkpoints: Checkpoints on disk.
        reduced: Reduced bytes on disk.
        shelf: What this member serves.
    """

    def __init__(
        self,
        setting: Setting,
        state: OuterState,
        applying: Applying,
        ledger: Ledger,
        checkpoints: Checkpoints,
        reduced: ReducedStore,
        shelf: Shelf,
    ) -> None:
        self._setting, self._state, self._applying = setting, state, applying
        self._ledger, self._checkpoints, self._reduced, self._shelf = ledger, checkpoints, reduced, shelf

    async def restore(self, tip: Value, holders: Sequence[PeerId], base: bytes | None = None) -> Applied:
        """Bring the outer state to the round after ``tip``.

        Args:
            tip: A certified value whose chain is in the ledger.
            holders: Members that may have what is missing here.
            base: The digest that the state must have then, where a quorum has already reported it.

        Raises:
            NodeError: ``SHC_NO_HOLDER`` when something cannot be had, ``STO_CORRUPT`` when another state than ``base``
                came of it. The call may be repeated; the outer state may have been replaced by an older one.
        """
        began = monotonic()
        fetched: Counter[PeerId] = Counter()
        target = tip.round + 1
        try:
            applied = await self._replay(
                await self._load(target, holders, fetched, base), target, holders, fetched
            )
        except NodeError:  # what others keep of the rounds may begin later than what is here
            applied = await self._replay(
                await self._download(target, holders, fetched), target, holders, fetched
            )
        if base is not None and applied.digest != base:
            raise NodeError(
                Code.STO_CORRUPT, f"The state restored for round {target} is not the one others have."
            )
        if fetched:
            self._setting.emit(
                "state.downloaded", round=applied.round, bytes=sum(fetched.values()), holders=sorted(fetched),
                seconds=monotonic() - began, digest=applied.digest.hex(),
            )  # fmt: skip
        return applied

    async def _replay(
        self, applied: Applied, target: int, holders: Sequence[PeerId], fetched: Counter[PeerId]
    ) -> Applied:
        while applied.round < target:
            chunks = await self._reduced_of(self._value(applied.round), holders, fetched)
            applied = await asyncio.to_thread(self._applying.apply, applied.round, chunks)
        return applied

    def _value(self, round_number: int) -> Value:
        certified = self._ledger.get(round_number)
        if certified is None:
            raise NodeError(Code.RND_CHAIN, f"The ledger has no value of round {round_number}.")
        return certified.value

    def _base(self, round_number: int) -> bytes | None:
        """The certified digest of the state from which a round starts, if its value is known."""
        if round_number == 0:
            return self._setting.genesis.base
        certified = self._ledger.get(round_number)
        return None if certified is None else certified.value.base

    # ---- checkpoints

    def forget_after(self, round_number: int) -> None:
        """Throw away checkpoints of later rounds: they are of a side of a fork that does not stand."""
        for number in self._checkpoints.rounds():
            if number > round_number:
                self._checkpoints.discard(number)

    async def _load(
        self, target: int, holders: Sequence[PeerId], fetched: Counter[PeerId], base: bytes | None
    ) -> Applied:
        if self._state.round == 0 and target == 0:
            described = self._applying.describe()
            return described if described.digest == self._setting.genesis.base else self._start_over()
        for round_number in self._checkpoints.rounds():
            if round_number > target or not self._replayable(round_number, target, holders):
                continue
            try:
                return await asyncio.to_thread(
                    self._read, round_number, base if round_number == target else None
                )
            except NodeError as error:
                self._setting.emit("checkpoint.damaged", code=str(error.code), reason=error.sentence)
                self._checkpoints.discard(round_number)
        if self._replayable(0, target, holders):
            return self._start_over()
        return await self._download(target, holders, fetched)

    def _start_over(self) -> Applied:
        """The initial state is a function of the genesis and its files: replay from round 0."""
        params = initial_parameters_of(self._setting.genesis, self._setting.corpus)
        return self._applying.load(0, params, np.zeros_like(params))  # times 0 would leave some at -0

    def _replayable(self, first: int, target: int, holders: Sequence[PeerId]) -> bool:
        """Whether the rounds from ``first`` on can be replayed: their bytes are here, or few enough to be fetched."""
        missing = sum(not self._reduced.has(self._value(number)) for number in range(first, target))
        return missing == 0 or (bool(holders) and missing < FULL_TRANSFER)

    def _read(self, round_number: int, base: bytes | None = None) -> Applied:
        path = self._checkpoints.path(round_number)
        params, momentum = self._checkpoints.read(path, round_number, base or self._base(round_number))
        return self._applying.load(round_number, params, momentum)

    async def _download(self, target: int, holders: Sequence[PeerId], fetched: Counter[PeerId]) -> Applied:
        offers: dict[int, list[PeerId]] = {}
        for peer, rounds in zip(
            holders, await asyncio.gather(*(self._offered(p) for p in holders)), strict=True
        ):
            for number in rounds:
                if number <= target and self._base(number) is not None:
                    offers.setdefault(number, []).append(peer)
        for number in sorted(offers, reverse=True):
            path = self._checkpoints.path(number)
            path.parent.mkdir(parents=True, exist_ok=True)

            def verify(file: Path, number: int = number) -> bool:
                try:
                    self._checkpoints.read(file, number, self._base(number))
                except NodeError:
                    return False
                return True

            most = 8 * self._setting.grid.size + (1 << 16)
            expect = Expect(verify=verify, max_bytes=most)
            try:
                report = await fetch(
                    self._setting.endpoint, checkpoint_name(number), offers[number], path, expect
                )
            except NodeError as error:
                self._setting.emit("download.failed", code=str(error.code), reason=error.sentence)
                continue
            fetched.update(report.per_holder)
            return await asyncio.to_thread(self._read, number)
        raise NodeError(Code.SHC_NO_HOLDER, "No member offers a checkpoint that this node can use yet.")

    async def _offered(self, peer: PeerId) -> set[int]:
        try:
            listing = await self._setting.endpoint.request(peer, AskList(prefix="checkpoint/"))
        except NodeError:
            return set()
        names = [entry.name.removeprefix("checkpoint/") for entry in listing.objects]
        return {int(name) for name in names if name.isascii() and name.isdigit()}

    # ---- reduced bytes

    async def _reduced_of(
        self, value: Value, holders: Sequence[PeerId], fetched: Counter[PeerId]
    ) -> list[bytes]:
        if not self._reduced.has(value):
            path = self._reduced.path(value.epoch, value.round, value.chunks)
            path.parent.mkdir(parents=True, exist_ok=True)
            expect = Expect(
                shard_hashes=[chunk.digest for chunk in value.chunks],
                shard_sizes=_sizes(self._setting, self._setting.grid),
            )
            name = reduced_name(value.epoch, value.round)
            report = await fetch(self._setting.endpoint, name, list(holders), path, expect)
            fetched.update(report.per_holder)
        return await asyncio.to_thread(self._reduced.read, value)

    # ---- offering

    def offer(self, value: Value) -> None:
        """Offer what a newly applied round makes useful, and stop offering what is too old.

        The reduced bytes of the round can be asked for at once; a checkpoint once a value names its digest as base.
        It is for the others: where the disk fails they have less to fetch here, and this member goes on.
        """
        try:
            self._offer(value)
        except (NodeError, OSError) as error:
            self._setting.emit("offer.failed", round=value.round, reason=str(error))

    def _offer(self, value: Value) -> None:
        if value.chunks and self._reduced.has(value):
            path = self._reduced.path(value.epoch, value.round, value.chunks)
            sizes = _sizes(self._setting, self._setting.grid)
            self._shelf.add(build_manifest(path, reduced_name(value.epoch, value.round), sizes), path)
        self._reduced.keep_only(value)
        rounds = [
            number
            for number in self._checkpoints.rounds()
            if number <= value.round and self._checkpoints.path(number).is_file()
        ]
        known = set(self._shelf.names())
        if rounds and checkpoint_name(rounds[0]) not in known:
            path = self._checkpoints.path(rounds[0])
            self._shelf.add(build_manifest(path, checkpoint_name(rounds[0])), path)
        keep = rounds[:CHECKPOINTS_KEPT]
        for old in rounds[CHECKPOINTS_KEPT:]:
            self._withdraw(checkpoint_name(old))
            self._checkpoints.discard(old)
        oldest = min(keep[-1] if keep else 0, value.round + 2 - FULL_TRANSFER)
        for name in known:
            if name.startswith("reduced/") and int(name.rsplit("/", 1)[1]) < oldest:
                self._withdraw(name)
        self._reduced.prune(oldest)

    def _withdraw(self, name: str) -> None:
        if name in self._shelf.names():
            self._shelf.remove(name)


def _sizes(setting: Setting, grid: Grid) -> list[int]:
    return [setting.codec.nbytes(part.stop - part.start) for part in grid.slices()]
