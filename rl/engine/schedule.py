"""Which sequence does what in the next step. Pure: what happened goes in, what to do comes out.

Two rules hold at every moment. A sequence reads and writes the cache of one policy version only, the one that it runs
on. And the sequences of a version that *decode* (all but their newest token is in the cache) are in the first n
slots of its cache; those that still *read* are behind them.

A sequence changes to the newest version where its hidden states have filled a chunk, or where there are none yet: it
then begins to read from its first token. It changes at most `MOST_REFILLS` times after it has sampled.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from rl.engine.cache import Saved
from rl.engine.interface import CHUNK, MOST_REFILLS, Request

PIECE = 256
"""Tokens that one sequence reads at once; pieces end at its multiples, so that they do not depend on the load."""

READ_TOKENS = 512
"""After so many tokens no further piece is begun in one step, so that decoding goes on meanwhile."""


@dataclass(eq=False)
class Running:
    """One request on its way.

    Attributes:
        request: What was asked.
        version: The policy version it runs on.
        tokens: The transcript so far.
        prompt: Length of the rollout's first prompt.
        computed: Positions whose keys and values are in the cache, from the first.
        proved: Hidden states that were handed over, from position prompt − 1.
        chunks: The version of each chunk that was begun.
        refills: How often the rollout changed its version.
        reused: Positions that were found in a cache.
        slot: Its place in the cache.
        begun: Whether anything of the rollout was sampled or proved with its version.
        fresh: Whether its prompt was read from the first token, so that others may copy it.
        saved: Keys and values of its first `computed` positions, until they are in its slot.
    """

    request: Request
    version: int
    tokens: list[int]
    prompt: int
    computed: int = 0
    proved: int = 0
    chunks: list[int] = field(default_factory=list)
    refills: int = 0
    reused: int = 0
    slot: int = -1
    begun: bool = False
    fresh: bool = True
    saved: Saved | None = None

    @property
    def decodes(self) -> bool:
        """Whether only the newest token is not in the cache."""
        return self.computed == len(self.tokens) - 1

    @property
    def sampled(self) -> int:
        """How many tokens this turn has sampled."""
        return len(self.tokens) - len(self.request.tokens)

    @property
    def border(self) -> int:
        """The position with whose state the next chunk begins, counted from what was handed over."""
        return self.prompt - 1 + -(-self.proved // CHUNK) * CHUNK

    def may_change(self, newest: int) -> bool:
        """Whether it is to run on the newest version from here on."""
        if self.version == newest or (self.begun and self.refills >= MOST_REFILLS):
            return False
        return self.proved % CHUNK == 0


@dataclass(frozen=True)
class Move:
    """Keys and values that change their slot, before anything else is done."""

    source: int
    target: int
    length: int
    swap: int = 0
    """Positions that go the other way."""
    copy: bool = False
    """What is in the source stays."""


@dataclass(frozen=True)
class Read:
    """Consecutive positions that a sequence reads."""

    running: Running
    begin: int
    end: int


@dataclass(frozen=True)
class Work:
    """What one version's weights do in the next step.

    Attributes:
        version: Whose.
        loads: Saved keys and values, and the slots they go to, before the moves.
        moves: In this order.
        decode: The sequences of the first slots, in order.
        reads: What is read beside that.
    """

    version: int
    loads: tuple[tuple[int, Saved], ...]
    moves: tuple[Move, ...]
    decode: tuple[Running, ...]
    reads: tuple[Read, ...]


class Schedule:
    """The sequences that wait and that run."""

    def __init__(self, slots: int, version: int) -> None:
        self.slots = slots
        self.newest = version
        self.waiting: deque[Running] = deque()
        self._running: dict[int, list[Running]] = {version: []}
        self._moves: dict[int, list[Move]] = {version: []}
        self._loads: dict[int, list[tuple[int, Saved]]] = {version: []}

    def __iter__(self) -> Iterator[Running]:
        """All that run."""
        for running in self._running.values():
            yield from running

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.waiting) or any(self._running.values())

    @property
    def versions(self) -> tuple[int, ...]:
        """Versions that are known, the newest last."""
        return tuple(sorted(self._running))

    def uses(self, version: int) -> bool:
        """Whether a sequence runs on a version or waits for it."""
        return bool(self._running[version]) or any(each.version == version for each in self.waiting)

    def add(self, running: Running) -> None:
        """Let one wait for its slot. Its version must be known."""
        self.waiting.append(running)

    def remove(self, running: Running) -> None:
        """Forget one, wherever it is; its slot is free."""
        if running.slot < 0:
            self.waiting.remove(running)
            return
        self._running[running.version].remove(running)
        running.slot = -1

    def update(self, version: int) -> None:
        """A newer version is there; who has not begun and who is at a border changes to it."""
        self._running[version] = []
        self._moves[version] = []
        self._loads[version] = []
        self.newest = version

    def retire(self, version: int) -> None:
        """Forget a version that nobody uses."""
        if self.uses(version) or version == self.newest:
            raise ValueError(f"version {version} is in use")
        del self._running[version], self._moves[version], self._loads[version]

    def plan(self) -> list[Work]:
        """What to do next, oldest version first; moves in it count as done."""
        for running in [*self.waiting, *self]:
            if running.may_change(self.newest):
                self._change(running)
        while self.waiting and sum(map(len, self._running.values())) < self.slots:
            self._enter(self.waiting.popleft())
        work = []
        budget = READ_TOKENS
        for version in self.versions:
            reads, budget = self._reads(version, budget)
            of_version = self._running[version]
            decode = sorted((each for each in of_version if each.decodes), key=lambda each: each.slot)
            for place, running in enumerate(decode):
                if running.slot >= len(decode):
                    taken = {each.slot for each in decode}
                    free = next(slot for slot in range(place + 1) if slot not in taken)
                    self._move(running, free)
            decode.sort(key=lambda each: each.slot)
            loads, moves = tuple(self._loads[version]), tuple(self._moves[version])
            self._loads[version].clear()
            self._moves[version].clear()
            if decode or reads:
                work.append(Work(version, loads, moves, tuple(decode), tuple(reads)))
        return work

    def has_read(self, read: Read) -> range:
        """Note that a piece was read.

        Returns:
            Which of its positions' states are to be handed over.
        """
        read.running.computed = read.end
        return self._prove(read.running, read.begin, read.end)

    def has_decoded(self, running: Running) -> None:
        """Note that the newest token's state was computed and is handed over."""
        running.computed += 1
        self._prove(running, running.computed - 1, running.computed)

    def _prove(self, running: Running, begin: int, end: int) -> range:
        first = running.prompt - 1 + running.proved
        fresh = range(max(begin, first), end)
        if fresh:
            running.begun = True
            running.proved += len(fresh)
            missing = -(-running.proved // CHUNK) - len(running.chunks)
            running.chunks += [running.version] * missing
        return fresh

    def _enter(self, running: Running) -> None:
        of_version = self._running[running.version]
        taken = {each.slot for each in of_version}
        # From above: the first slots are for those that decode.
        running.slot = next(slot for slot in reversed(range(self.slots)) if slot not in taken)
        of_version.append(running)
        if running.saved is not None:
            self._loads[running.version].append((running.slot, running.saved))
            running.saved = None

    def _change(self, running: Running) -> None:
        if running.slot >= 0:
            self.remove(running)
            self.waiting.appendleft(running)
        running.version = self.newest
        running.computed = running.reused = 0
        running.saved = None
        running.fresh = running.sampled == 0 and running.proved == 0
        running.refills += running.begun

    def _reads(self, version: int, budget: int) -> tuple[list[Read], int]:
        reads = []
        for running in [each for each in self._running[version] if not each.decodes]:
            if running.computed == 0 and running.fresh and self._share(running):
                continue
            if running.decodes or budget <= 0:
                continue
            begin = running.computed
            end = min((begin // PIECE + 1) * PIECE, len(running.tokens) - 1)
            if version != self.newest and running.border > begin:
                end = min(end, running.border)
            reads.append(Read(running, begin, end))
            budget -= end - begin
        return reads, budget

    def _share(self, running: Running) -> bool:
        """Take the prompt of one that runs with the same; True if it is still being read."""
        length = len(running.request.tokens) - 1
        for other in self._running[running.version]:
            if other is running:
                return False
            if other.fresh and other.request.tokens == running.request.tokens and length:
                if other.computed < length:
                    return True
                self._moves[running.version].append(Move(other.slot, running.slot, length, copy=True))
                running.computed = running.reused = length
                return False
        return False

    def _move(self, running: Running, slot: int) -> None:
        other = next((each for each in self._running[running.version] if each.slot == slot), None)
        self._moves[running.version].append(
            Move(running.slot, slot, running.computed, swap=other.computed if other else 0)
        )
        if other is not None:
            other.slot = running.slot
        running.slot = slot
