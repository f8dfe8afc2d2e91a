"""The all-reduce of one attempt as flows: owners pull from contributors, the leader moves what lost owners had."""

from typing import TYPE_CHECKING

from blake3 import blake3

from diloco.rounds.events import Reduce, Reduced
from diloco.rounds.roster import bitmap
from diloco.rounds.values import ReducedChunk

if TYPE_CHECKING:
    from tests.sim.process import Process

_LOOK = 0.25
_AT_ONCE = 0.8  # share of the reduced chunks that a member has before the Close


class Reducing:
    """One member's part in a reduce; the leader's part drives it.

    Args:
        process: The member.
        asked: What the machine asked for.
    """

    def __init__(self, process: "Process", asked: Reduce) -> None:
        self.process, self.asked = process, asked
        self.chunks: dict[int, ReducedChunk] = {}
        if asked.leader == process.name:
            process.later(self._seconds(), self._look)

    @property
    def which(self) -> tuple[int, int, int]:
        """Epoch, round and attempt."""
        return self.asked.epoch, self.asked.round, self.asked.attempt

    def _seconds(self) -> float:
        """How long the flows take: what an owner pulls from every other, over its link."""
        shape, plan = self.process.world.shape, self.asked.plan
        if not plan.roster:
            return 2 * shape.latency
        most = max(plan.owners.count(owner) for owner in set(plan.owners))
        return most * shape.chunk_bytes * 2 * (len(plan.roster) - 1) / shape.bandwidth + 4 * shape.latency

    def _look(self) -> None:
        """Reduce what can be reduced now; report when every chunk is here."""
        me, plan, world = self.process, self.asked.plan, self.process.world
        if me.reducing is not self:
            return
        owners = self._owners()
        for chunk, named in enumerate(plan.owners):
            if chunk in self.chunks:
                continue
            owner = owners.get(named)
            if owner is None:
                if named not in me.dead:
                    continue
                owner = next(iter(owners.values()), me)  # the leader moves it
            included = self._contributors(owner)
            if included is None:
                continue
            entry = self._reduce(chunk, included)
            self.chunks[chunk] = entry
            owner.disk.chunks.add(entry.digest)
            me.disk.chunks.add(entry.digest)
            for process in world.living():
                reducing = process.reducing
                takes_part = reducing is not None and reducing.which == self.which
                if takes_part and world.linked(owner, process) and world.random.random() < _AT_ONCE:
                    process.disk.chunks.add(entry.digest)
        if len(self.chunks) < len(plan.owners) or me.disk.full:
            me.later(_LOOK, self._look)
            return
        me.feed(Reduced(*self.which, tuple(self.chunks[chunk] for chunk in range(len(plan.owners)))))

    def _owners(self) -> "dict[str, Process]":
        """Owners that take part and that the leader reaches."""
        me, world = self.process, self.process.world
        found = {}
        for name in dict.fromkeys(self.asked.plan.owners):
            for process in world.named.get(name, ()):
                reducing = process.reducing
                reached = process is me or world.linked(me, process)
                if reached and reducing is not None and reducing.which == self.which:
                    found[name] = process
        return found

    def _contributors(self, owner: "Process") -> list[int] | None:
        """Positions of the roster whose chunks the owner has; None while it waits for someone."""
        world, plan = owner.world, self.asked.plan
        included = []
        for position, entry in enumerate(plan.roster):
            commitment = plan.readys[entry.peer].commitment
            near = [p for p in world.named.get(entry.peer, ()) if p is owner or world.linked(owner, p)]
            if any(p.gives is not None and p.gives[1].commitment == commitment for p in near):
                included.append(position)
            elif not near and entry.peer not in owner.dead:
                return None
        return included

    def _reduce(self, chunk: int, included: list[int]) -> ReducedChunk:
        """The mean as a digest: a pure function of what is in it."""
        plan = self.asked.plan
        parts = [chunk.to_bytes(4, "big"), plan.base]
        for position in included:
            entry = plan.roster[position]
            parts += [plan.readys[entry.peer].commitment, entry.weight.to_bytes(8, "big")]
        bits = bitmap(included, len(plan.roster))
        return ReducedChunk(digest=blake3(b"".join(parts)).digest(), included=bits)
