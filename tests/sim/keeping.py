"""What a simulated process holds: the bytes of rounds and the outer state, on its disk or fetched from others."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from diloco.rounds.certificate import Certified
from diloco.rounds.events import Held, StateReady, Unheld
from diloco.rounds.values import Value, parse_value
from protocol.errors import NodeError
from tests.sim.disk import state_after
from tests.sim.following import Following

if TYPE_CHECKING:
    from tests.sim.process import Process


class Keeping(Following):
    """A process with an outer state."""

    def has(self, chunks: list[bytes]) -> bool:
        """Whether every chunk is here or can be fetched from someone in reach; then it is here."""
        held = self.disk.chunks
        lacking = [digest for digest in chunks if digest not in held]
        if not lacking:
            return True
        if self.disk.full:
            return False
        for digest in lacking:
            if any(digest in p.disk.chunks for p in self._near()):
                held.add(digest)
        return all(digest in held for digest in lacking)

    def _fetch(self, data: bytes, tries: int) -> None:
        if self.state is None:
            return
        try:
            value = parse_value(data)
        except (NodeError, ValueError) as error:
            self.feed(Unheld(data, str(error)))
            return
        size = self.world.shape.chunk_bytes * len(value.chunks)
        wait = 0.02 if not tries else 0.5
        if any(entry.digest not in self.disk.chunks for entry in value.chunks):
            wait += size / self.world.shape.bandwidth
        self.later(wait, self._fetched, data, value, tries)

    def _fetched(self, data: bytes, value: Value, tries: int) -> None:
        if self.state is None:
            return
        if self.has([entry.digest for entry in value.chunks]):
            self.feed(Held(data))
        elif tries < 6:
            self._fetch(data, tries + 1)
        else:
            self.feed(Unheld(data, "nobody in reach has the bytes"))

    def _commit(self, certified: Certified) -> None:
        assert self.state is not None
        before = self.tip
        self.said.clear()
        self.told.clear()
        self.promising.forget()
        self.reducing = None
        self._append(certified)
        self.freeze_again()
        self.spread(before, certified)
        self._apply()
        self._train()
        if self.state.finished and self.world.judge is not None:
            self.world.judge.finished(self)

    def _renew(self, certified: Certified, behind: tuple[Certified, ...]) -> None:
        for link in behind[:1]:
            follows = (link.named or link).value.previous
            place = next(i for i, c in enumerate(self.disk.chain) if c.digest == follows)
            self.disk.chain = self.disk.chain[: place + 1]
            self.disk.go_back(self.tip.value.round + 1)
        for link in behind:
            self._append(link)
        before = self.tip
        self.said.clear()
        self.told.clear()
        self.promising.forget()
        self.reducing = None
        self._append(certified)
        self.freeze_again()
        self.spread(before, certified)
        self._apply()
        self._train()

    def _apply(self) -> None:
        """Bring the outer state to the tip; tried again with every tick until it is there."""
        if self._applying or self.state is None or self.state.base is not None:
            return
        self._applying = True
        self.later(0.05 + self.disk.slow, self._applied)

    def _applied(self) -> None:
        self._applying = False
        if self.state is None or self.disk.full:
            return
        if self._restore(self._near()):
            self._ready()

    def _restore(self, near: "Iterable[Process]") -> bool:
        """Replay the decided rounds whose bytes can be had, else take the state of someone who has it."""
        disk, wanted = self.disk, self.tip.value.round + 1
        values = {c.value.round: c for c in disk.chain if not c.start}
        while 0 <= disk.reached < wanted:
            certified = values.get(disk.reached)
            if certified is None or not self.has([entry.digest for entry in certified.value.chunks]):
                break
            if disk.base != certified.value.base:  # what is here is not what the round was trained on
                disk.reached = -1
                break
            disk.reach(disk.reached + 1, state_after(disk.base, certified.value))
            if self.world.judge is not None:
                self.world.judge.applied(self, certified, disk.base)
        named = (self.tip.value.base if self.tip.start else b"") or disk.base
        if disk.reached == wanted and disk.base == named:
            return True
        for other in near:
            same = other.disk.reached == wanted and other.tip.digest == self.tip.digest
            if same and (not self.tip.start or other.disk.base == (self.tip.value.base or other.disk.base)):
                disk.reach(wanted, other.disk.base)
                return True
        return False

    def _resync(self, base: bytes) -> None:
        """Take the state of one that has this base, however far both are when it has come."""
        sources = [p for p in self.world.living() if p is not self and p.disk.base == base]
        if sources:
            self.later(0.5, self._resynced, sources, 0)

    def _resynced(self, sources: "list[Process]", tries: int) -> None:
        if self.state is None:
            return
        for other in sources:
            same = other.disk.reached == self.disk.reached and other.tip.digest == self.tip.digest
            if same and self.world.linked(self, other):
                self.disk.reach(other.disk.reached, other.disk.base)
                self._ready()
                return
        if tries < 20:
            self.later(0.2, self._resynced, sources, tries + 1)

    def _ready(self) -> None:
        if self.state is not None and self.disk.reached == self.state.round:
            self.feed(StateReady(self.state.round, self.disk.base))

    def freeze_again(self) -> None:
        """What the machine kept of a contribution decides what this process still has."""
        raise NotImplementedError

    def _train(self) -> None:
        raise NotImplementedError
