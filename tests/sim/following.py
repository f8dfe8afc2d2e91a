"""How a simulated process follows the chain: what it is shown, what it asks for, where it sees that the chain forks."""

from contextlib import suppress
from typing import TYPE_CHECKING

from diloco.rounds import routing
from diloco.rounds.certificate import Certified
from diloco.rounds.events import Decision, ResetCame, RivalCame
from diloco.rounds.proofs import Adoption
from diloco.rounds.recovery import standing
from diloco.rounds.values import Decided
from protocol.errors import NodeError
from tests.sim.running import Running

if TYPE_CHECKING:
    from tests.sim.process import Process

_ASK_BYTES = 150


class Following(Running):
    """A process with a chain."""

    def show(self, to: "Process", certified: list[Certified], has: bytes = b"") -> None:
        """Send certified values to a process that has the value of digest ``has``."""
        for one in certified:
            size = self.world.size_of(one, as_delta=one.value.previous == has)
            self.world.send(self, to, size, to.decided, one, self)
            has = one.digest

    def spread(self, before: Certified, certified: Certified) -> None:
        """Pass a decided value on to this member's part of its tree."""
        if (certified.value.epoch, certified.value.round) < self.world.newest:
            return  # most others are further already
        spread = self.world.spread_of(before, certified)
        for place in spread.of(self.name):
            self._give(spread, place, certified)

    def _give(self, spread: routing.Spread, place: int, certified: Certified) -> None:
        name = spread.order[place]
        near = [p for p in self.world.named.get(name, ()) if name != self.name and self.world.linked(self, p)]
        if near and name not in self.dead:
            for process in near:
                self.show(process, [certified], certified.value.previous)
            return
        for below in spread.children(place):
            self._give(spread, below, certified)

    def decided(self, certified: Certified, by: "Process") -> None:
        """Someone showed a certified value; it is verified, and then an event."""
        state = self.state
        if state is None:
            return
        value = certified.value
        if certified.start:
            self.reset_came(certified.start, by)
        elif value.previous == state.tip.digest:
            try:
                read = self.world.verified(state.tip, certified)
            except NodeError:
                return
            self.feed(Decision(read))
        elif (value.epoch, value.round) > (state.epoch, state.round):
            self.ask(by.name)
        else:
            self._compare(certified)
            if value.round == state.round:
                self._look(by)

    def reset_came(self, raw: bytes, by: "Process") -> None:
        """Someone showed a reset; one of this epoch, or one that does not follow, shows that the chain has forked."""
        state = self.state
        if state is None:
            return
        try:
            certified = self.world.proofs.reset(state.tip, raw, self.links)
            self.feed(ResetCame(certified, root=self.world.proofs.by_root(certified)))
        except NodeError:
            with suppress(NodeError):
                mine = self.origin
                rival = (
                    self.world.proofs.rival(None, mine, Decided(value=b"", start=raw))
                    if mine.value.epoch
                    else None
                )
                if rival is not None and not state.halted:
                    self.feed(RivalCame(rival))
            self._look(by)

    def _compare(self, certified: Certified) -> None:
        """A certified value does not follow: see whether it is another one for a place that is decided here."""
        state, chain = self.state, self.disk.chain
        mine = self.decided_in(certified.value.round)
        before = next((c for c in chain if c.digest == certified.value.previous), None)
        if state is None or state.halted or mine is None or before is None or mine.digest == certified.digest:
            return
        if mine.value.epoch == certified.value.epoch == state.epoch:
            with suppress(NodeError):
                self.feed(RivalCame(self.world.verified(before, certified)))

    def _look(self, at: "Process") -> None:
        """What a process shows does not follow: ask for its chain."""
        if at is not self and self.world.now - self._looked > 1.0:
            self._looked = self.world.now
            self.world.send(self, at, _ASK_BYTES, at.looked_at, self)

    def looked_at(self, by: "Process") -> None:
        """A process whose chain is another one asks for this one's."""
        self.world.send(self, by, _ASK_BYTES * len(self.disk.chain), by.offered, self.shown(), self)

    def offered(self, chain: list[Certified], by: "Process") -> None:
        """See where a chain and this one part, and whether the root key has ended that on the other side."""
        state, mine = self.state, {c.digest for c in self.disk.chain}
        common = [c for c in chain if c.digest in mine]
        links = chain[len(common) :]
        if state is None or not links:
            return
        if links[0].value.epoch == state.epoch:
            self.decided(links[0], by)
        adoption = Adoption(self.world.proofs, common[-1], self.tip.value.epoch, self.links)
        with suppress(NodeError):
            for c in links:
                link = adoption.take(Decided(value=c.data, attempt=c.attempt, votes=c.votes, start=c.start))
                if adoption.whole:
                    self.feed(ResetCame(link, root=True, behind=tuple(adoption.found[:-1])))
                    return

    def _halt(self, rival: Certified) -> None:
        """Keep both sides of a fork and show them to everyone."""
        self.disk.rival = rival
        mine = self.origin if rival.start else self.decided_in(rival.value.round)
        for process in self._near():
            self.show(process, [side for side in (rival, mine) if side is not None])

    @property
    def origin(self) -> Certified:
        """The record that began the newest epoch."""
        return next(c for c in reversed(self.disk.chain) if c.start)

    def decided_in(self, round_number: int) -> Certified | None:
        """What was decided in a round, as the ledger has it."""
        found = (c for c in reversed(self.disk.chain) if c.value.round == round_number)
        return next((c for c in found if not (c.start and c.value.epoch)), None)

    def links(self, round_number: int) -> list[Certified]:
        """What names a round, as the ledger has it."""
        return [c for c in reversed(self.disk.chain) if c.value.round == round_number]

    def standing(self) -> tuple[Certified, bytes]:
        """The last value that stands here, and the state after it."""
        return standing(self.tip, self.disk.base, self.origin, self.disk.rival, self.links)

    def shown(self) -> list[Certified]:
        """Its chain as it shows it: a value that only a reset makes stand comes with the reset."""
        return [link for link in self.disk.chain if link.votes or link.start]

    def after(self, epoch: int, round_number: int) -> list[Certified]:
        """Certified values after a place, as its disk has them."""
        place = (epoch, round_number)
        return [c for c in self.shown() if (c.value.epoch, c.value.round) > place]

    def _answer(self, peer: str, epoch: int, round_number: int) -> None:
        now = self.world.now
        if now - self._answered.get(peer, -1.0) < 1.0:
            return
        self._answered[peer] = now
        for process in self.world.named.get(peer, ()):
            self.show(process, self.after(epoch, round_number - 1)[:8], process.tip.digest)

    def ask(self, peer: str) -> None:
        """Ask a peer that is ahead for the certificates since."""
        if self.world.now - self._asked < 0.2:
            return
        self._asked = self.world.now
        for process in self.world.named.get(peer, ()):
            self.world.send(self, process, _ASK_BYTES, process.asked, self)

    def asked(self, by: "Process") -> None:
        """A process asks for the values after its tip."""
        value = by.tip.value
        self.show(by, self.after(value.epoch, value.round)[:100], by.tip.digest)

    def take_chain(self, chain: list[Certified]) -> None:
        """Extend the chain on disk, as a node does before it begins."""
        for certified in chain:
            value, tip = certified.value, self.tip
            if certified.start:
                with suppress(NodeError):
                    self._append(self.world.proofs.reset(tip, certified.start, self.links))
            elif value.previous == tip.digest:
                self._append(self.world.verified(tip, certified))

    def _append(self, certified: Certified) -> None:
        chain, value = self.disk.chain, certified.value
        if (voted := certified.named) is not None and value.previous not in {c.digest for c in chain}:
            last = next(i for i, c in enumerate(chain) if c.digest == voted.value.previous)
            self.disk.chain = chain = [*chain[: last + 1], voted]
            self.disk.go_back(voted.value.round)
        if certified.start:
            last = next(i for i, c in enumerate(chain) if c.digest == value.previous)
            self.disk.chain = chain = chain[: last + 1]
            self.disk.go_back(value.round + 1)
            self.disk.rival = None
        chain.append(certified)
        self.world.newest = max(self.world.newest, (value.epoch, value.round))
