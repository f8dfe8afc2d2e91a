"""From hidden states, a few rows a step, to the proofs of a rollout.

Rows are collected until a chunk is full and then handed to TOPLOC's streaming builder in one piece, which builds the
proof beside the engine.
"""

import torch

from rl.engine.interface import CHUNK
from toploc import ProofPoly, StreamingBuilder, Suspended, build_proofs_bytes

TOPK = 128
"""Values of a chunk that its proof is made of."""


class Prover:
    """The proofs of many rollouts."""

    def __init__(self) -> None:
        self._builder = StreamingBuilder(decode_batching_size=CHUNK, topk=TOPK)
        self._rows: dict[str, list[torch.Tensor]] = {}

    def begin(self, id: str, state: Suspended | None = None) -> None:
        """Begin a rollout, or go on with one."""
        self._rows[id] = []
        if state is not None:
            self._builder.resume(id, state)

    def add(self, id: str, states: torch.Tensor) -> None:
        """Take states [n, H] or one state [H] in order; they must not change afterwards."""
        rows = self._rows.get(id)
        if rows is None:
            return
        if states.dim() == 2:
            self._flush(id)
            self._builder.add(id, states)
            return
        rows.append(states)
        if len(rows) >= CHUNK:
            self._flush(id)

    def finish(self, id: str) -> tuple[tuple[bytes, ...], Suspended | None]:
        """End a turn.

        Returns:
            The rollout's proofs, the last of a short chunk where one is open; and what it takes to go on.
        """
        if id not in self._rows:
            return (), None
        self._flush(id)
        del self._rows[id]
        if not self._builder.steps(id):
            self._builder.discard(id)
            return (), Suspended((), 0, torch.empty(0, 0), True)
        state = self._builder.suspend(id)
        last = build_proofs_bytes(state.window, CHUNK, TOPK, skip_prefill=True) if len(state.window) else []
        return (*state.proofs, *last), state

    def discard(self, id: str) -> None:
        """Forget a rollout."""
        self._rows.pop(id, None)
        self._builder.discard(id)

    def close(self) -> None:
        """End the pool."""
        self._builder.close()

    def _flush(self, id: str) -> None:
        rows = self._rows[id]
        if rows:
            self._builder.add(id, torch.stack(rows))
            rows.clear()


def cut(proofs: tuple[bytes, ...], chunks: int) -> Suspended:
    """The first chunks of a rollout whose open chunk is to be computed again.

    Raises:
        ValueError: There are fewer proofs, or one is no proof.
    """
    if len(proofs) < chunks:
        raise ValueError(f"{len(proofs)} proofs of {chunks} full chunks")
    for proof in proofs[:chunks]:
        ProofPoly.from_bytes(proof)
    return Suspended(tuple(proofs[:chunks]), chunks * CHUNK, torch.empty(0, 0), True)
