"""Taking the outer step of a decided round: every member decodes the same bytes and computes the same bits."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diloco import digest
from diloco.member.setting import Setting
from diloco.outer_state import OuterState
from diloco.outer_step import outer_step
from diloco.store.checkpoints import Checkpoints
from protocol.units import Digest


@dataclass(frozen=True)
class Applied:
    """The state after a round.

    Attributes:
        round: The round that starts from it.
        digest: State digest.
        parameters: Digest of the outer parameters alone.
        momentum: Digest of the outer momentum alone.
    """

    round: int
    digest: Digest
    parameters: Digest
    momentum: Digest


class Applying:
    """Outer steps on the shared-memory state. One call at a time, never while workers train.

    Args:
        setting: The member's setting.
        state: The outer state.
        checkpoints: Where checkpoints go.
    """

    def __init__(self, setting: Setting, state: OuterState, checkpoints: Checkpoints) -> None:
        self._setting, self._state, self._checkpoints = setting, state, checkpoints

    def describe(self) -> Applied:
        """Digests of the current state."""
        state = self._state
        params, momentum = state.params, state.momentum
        return Applied(
            state.round,
            digest.state_digest(state.round, params, momentum, self._setting.grid),
            digest.parameters_digest(params),
            digest.momentum_digest(momentum),
        )

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
        outer, codec = self._setting.genesis.sections.outer, self._setting.codec
        if not chunks:
            params_out[:] = params
            momentum_out[:] = momentum
        for part, data in zip(self._setting.grid.slices(), chunks, strict=False):
            gradient = codec.decode(data, part.stop - part.start)
            outer_step(
                params[part],
                momentum[part],
                gradient,
                outer.lr,
                outer.momentum,
                params_out[part],
                momentum_out[part],
            )
        state.flip(round_number + 1)
        applied = self.describe()
        if (round_number + 1) % self._setting.genesis.sections.round.checkpoint_every == 0:
            self._checkpoints.write(round_number + 1, state.params, state.momentum, applied.digest)
        return applied

    def load(self, round_number: int, params: np.ndarray, momentum: np.ndarray) -> Applied:
        """Replace the state by one that was restored or downloaded, already verified."""
        params_out, momentum_out = self._state.back()
        params_out[:] = params
        momentum_out[:] = momentum
        self._state.flip(round_number)
        return self.describe()
