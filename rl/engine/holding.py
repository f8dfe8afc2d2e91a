"""Conversations between two turns: what it takes to go on without reading them again."""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

from rl.engine.cache import Saved
from toploc import Suspended


@dataclass(frozen=True, eq=False)
class Held:
    """A conversation after a turn.

    Attributes:
        tokens: The transcript, as it was sampled.
        prompt: Length of the rollout's first prompt.
        version: The policy version of its keys and values.
        saved: Keys and values of all positions but the last.
        proofs: The proofs so far and the open chunk's states, where the rollout is proved.
        chunks: The version of each chunk.
        refills: How often the rollout changed its version.
        until: When it is forgotten, in seconds of the holder's clock.
    """

    tokens: tuple[int, ...]
    prompt: int
    version: int
    saved: Saved
    proofs: Suspended | None
    chunks: tuple[int, ...]
    refills: int
    until: float


class Holder:
    """Holds conversations within bounds of memory and time; the oldest go first."""

    def __init__(self, most_bytes: int, most_time: timedelta) -> None:
        self._most = most_bytes
        self.time = most_time
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def put(self, id: str, held: Held) -> None:
        """Hold one; others, or itself, are forgotten if it does not fit."""
        self.forget(id)
        self._held[id] = held
        self._bytes += held.saved.size
        while self._bytes > self._most:
            self.forget(next(iter(self._held)))

    def take(self, id: str) -> Held | None:
        """Hand one out; it is no longer held."""
        held = self._held.pop(id, None)
        if held is not None:
            self._bytes -= held.saved.size
        return held

    def forget(self, id: str) -> None:
        """Hold it no longer, if it was held."""
        self.take(id)

    def expire(self, now: float) -> None:
        """Forget those whose time is over."""
        for id in [id for id, held in self._held.items() if held.until <= now]:
            self.forget(id)

    def forget_before(self, version: int) -> None:
        """Forget those of versions before this one."""
        for id in [id for id, held in self._held.items() if held.version < version]:
            self.forget(id)

    def uses(self, version: int) -> bool:
        """Whether one is held that belongs to this version."""
        return any(held.version == version for held in self._held.values())
