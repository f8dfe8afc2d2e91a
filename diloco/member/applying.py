"""Taking the outer step of a decided round: every member decodes the same bytes and computes the same bits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diloco import digest
from diloco.member.setting import Setting
from diloco.outer_state import OuterState
from diloco.parameters import in_force
from diloco.replay import replay
from diloco.store.checkpoints import Checkpoints
from diloco.store.ledger import Ledger
from protocol.errors import NodeError
from protocol.units import Digest


@dataclass(frozen=True)
class Applied:
    """The state after a round.

    Attributes:
        round: The round that starts from it.
        digest: State digest.
        parameters: Digest of the outer parameters alone.
        momentum: Digest of the outer momentum alone.
        leaves: Digests of the chunks, whose tree gives ``digest``.
    """

    round: int
    digest: Digest
    parameters: Digest
    momentum: Digest
    leaves: tuple[Digest, ...]


class Applying:
    """Outer steps on the shared-memory state. One call at a time, never while workers train.

    Args:
        setting: The member's setting.
        state: The outer state.
        checkpoints: Where checkpoints go.
        ledger: Certified values, which say what the operator changed.

    Attributes:
        described: Digests of the state in memory, None while that is being replaced.
    """

    def __init__(self, setting: Setting, state: OuterState, checkpoints: Checkpoints, ledger: Ledger) -> None:
        self._setting, self._state, self._checkpoints, self._ledger = setting, state, checkpoints, ledger
        self.described: Applied | None = None
        self._asked: set[int] = set()

    def keep_after(self, round_number: int) -> None:
        """Write a checkpoint after a round that is to be applied, whatever the genesis says; any thread may call it."""
        self._asked = {number for number in self._asked if number >= round_number - 1} | {round_number}

    def describe(self) -> Applied:
        """Digests of the current state."""
        state, grid = self._state, self._setting.grid
        params, momentum = state.params, state.momentum
        leaves = digest.leaves(params, momentum, grid)
        self.described = Applied(
            state.round,
            digest.digest_of_leaves(state.round, leaves, grid),
            digest.parameters_digest(params),
            digest.momentum_digest(momentum),
            leaves,
        )
        return self.described

    def _flip(self, round_number: int) -> Applied:
        self.described = None
        self._state.flip(round_number)
        return self.describe()

    def apply(self, round_number: int, chunks: Sequence[bytes]) -> Applied:
        """Take the outer step of a round.

        A round to which nobody contributed has no chunks: parameters and momentum stay as they are.

        Args:
            round_number: The decided round; the state must be the one it started from.
            chunks: The reduced chunks that its value names, verified.

        Returns:
            The state from which the next round starts.
        """
        state = self._state
        if state.round != round_number:
            raise ValueError(f"round {round_number} cannot be applied to the state of round {state.round}")
        params, momentum = state.params, state.momentum
        params_out, momentum_out = state.back()
        outer = in_force(self._setting.genesis.sections, self._ledger, round_number).outer
        replay(
            params, momentum, chunks, grid=self._setting.grid, codec=self._setting.codec,
            lr=outer.lr, mu=outer.momentum, params_out=params_out, momentum_out=momentum_out,
        )  # fmt: skip
        applied = self._flip(round_number + 1)
        due = (round_number + 1) % self._setting.genesis.sections.round.checkpoint_every == 0
        if due or round_number in self._asked:
            self._keep(applied)
        return applied

    def _keep(self, applied: Applied) -> None:
        """Write a checkpoint; where that fails the one before and the reduced bytes since still give the state."""
        try:
            self._checkpoints.write(applied.round, self._state.params, self._state.momentum, applied.digest)
        except NodeError as error:
            self._setting.emit(
                "checkpoint.failed", code=str(error.code), round=applied.round, reason=error.sentence
            )

    def load(self, round_number: int, params: np.ndarray, momentum: np.ndarray) -> Applied:
        """Replace the state by one that was restored or downloaded, already verified."""
        params_out, momentum_out = self._state.back()
        params_out[:] = params
        momentum_out[:] = momentum
        return self._flip(round_number)

    def replace(self, chunks: Mapping[int, bytes]) -> Applied:
        """Replace some chunks of the current state.

        Args:
            chunks: Bytes by index in the chunk grid: parameters, then momentum, little-endian fp32.
        """
        params, momentum = self._state.back()
        params[:] = self._state.params
        momentum[:] = self._state.momentum
        for chunk, data in chunks.items():
            part, values = self._setting.grid.slice(chunk), np.frombuffer(data, dtype="<f4")
            params[part], momentum[part] = values[: values.size // 2], values[values.size // 2 :]
        return self._flip(self._state.round)
