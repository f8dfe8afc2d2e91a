"""Keys and values of the sequences that run on one policy version.

A cache belongs to one version's weights and is dropped with them: there is no way by which what old weights computed
reaches new ones. Each running sequence has a *slot*; the slots in use are always the first n, so that a step reads
them in one piece. Memory grows with the longest sequence, in steps, up to the model's context.
"""

from dataclasses import dataclass

import torch

from rl.engine.shape import Shape

TILE = 64
"""Lengths are rounded up to it when attention reads the cache: with it the sums have one order, however long the
other sequences are."""


@dataclass(frozen=True, eq=False)
class Saved:
    """Keys and values of one sequence, outside of any slot: [layers, 2, kv_heads, length, head]."""

    states: torch.Tensor

    @property
    def length(self) -> int:
        """Positions held."""
        return int(self.states.shape[3])

    @property
    def size(self) -> int:
        """Bytes held."""
        return int(self.states.numel() * self.states.element_size())


class Cache:
    """Slots for keys and values: [layers, 2, slots, kv_heads, room, head]."""

    def __init__(self, shape: Shape, slots: int, kind: torch.dtype, device: torch.device) -> None:
        self._shape = shape
        self.slots = slots
        self.states = torch.zeros(
            shape.layers,
            2,
            slots,
            shape.kv_heads,
            min(4 * TILE, self._most()),
            shape.head,
            dtype=kind,
            device=device,
        )

    def _most(self) -> int:
        return -(-int(self._shape.context) // TILE) * TILE

    @property
    def room(self) -> int:
        """Positions for which there is memory in each slot."""
        return int(self.states.shape[4])

    def reserve(self, length: int) -> None:
        """Make room for sequences of that length, at most the model's context."""
        if length <= self.room:
            return
        room = min(self._most(), max(-(-length // TILE) * TILE, self.room * 3 // 2 // TILE * TILE))
        wider = self.states.new_zeros(*self.states.shape[:4], room, self.states.shape[5])
        wider[:, :, :, :, : self.room] = self.states
        self.states = wider

    def save(self, slot: int, length: int) -> Saved:
        """A copy of the first positions of a slot."""
        return Saved(self.states[:, :, slot, :, :length].clone())

    def load(self, slot: int, saved: Saved) -> None:
        """Put a copy into a slot."""
        self.reserve(saved.length)
        self.states[:, :, slot, :, : saved.length] = saved.states

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first positions of one slot to another."""
        self.states[:, :, target, :, :length] = self.states[:, :, source, :, :length]
