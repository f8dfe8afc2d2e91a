"""Whoever holds a key of the operator: orders by number, new epochs by hand, and the coordinator's automatic policy."""

from typing import TYPE_CHECKING

from diloco.rounds import founding
from diloco.rounds.records import Order, Reset
from diloco.rounds.rescue import judge, last_of, seats_of
from protocol.delegation import Delegation
from protocol.messages import encode
from protocol.units import PeerId
from tests.sim.setting import OPERATOR, says

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World

_LOOK = 1.0


class Operator:
    """Signs with a key of the operator, through whichever node it sits at.

    Args:
        world: The run.
        delegate: Number of the delegation whose key it has; 0 for the root key.
    """

    def __init__(self, world: "World", delegate: int = 0) -> None:
        self.world = world
        self.number = 0
        self.key, self.delegation = OPERATOR, b""
        if delegate:
            self.key = PeerId(f"delegate{delegate}")
            said = Delegation(delegate=self.key, scopes=("reset",), number=delegate, expires_at=1 << 40)
            self.delegation = says(OPERATOR, said).raw

    def order(self, at: "Process", kind: str, peer: str = "", name: str = "", value: str = "") -> None:
        """Give an order to everyone in reach of a process."""
        taken = max(p.tip.value.order_number for p in self.world.processes)
        self.number = max(self.number, taken) + 1
        sealed = says(OPERATOR, Order(number=self.number, kind=kind, peer=peer, name=name, value=value))
        for process in self.world.processes:
            if process is at or self.world.linked(at, process):
                process.later(self.world.shape.latency, process.ordered, sealed)

    def reset(self, at: "Process") -> bool:
        """Begin a new epoch after the last value of a process that stands, with whom it reaches; whether it could."""
        world, state = self.world, at.state
        if state is None or at.left or (state.base is None and not state.halted):
            return False
        last, base, shown = last_of(state, *at.standing())
        near = [p for p in world.living() if p is at or world.linked(at, p)]
        peers = seats_of(last.value, {p.name: p.seated for p in near if p.state is not None})
        if not any(peers.values()):
            return False
        lost = {peer: s.message.boot for peer, s in state.readys.items() if s.message.lost_record}
        value = founding.make_reset(
            world.rules, last.value, last.digest, base, peers, world.random.randbytes(32), lost, state.epoch
        )
        askers = tuple(state.asks[peer].raw for peer in sorted(state.asks))
        reset = Reset(value=encode(value), askers=askers, last=shown, delegation=self.delegation)
        raw = says(self.key, reset).raw
        for process in world.processes:
            process.disturbed = max(process.disturbed, world.now + 10.0)
        for process in near:
            world.send(at, process, len(raw), process.reset_came, raw, at)
        return True


class Coordinator:
    """A node with a delegated key and ``auto_reset``, see ``node/roles/resetting.py``.

    Args:
        world: The run.
        name: The member beside it.
        delegate: Number of its delegation.
    """

    def __init__(self, world: "World", name: str, delegate: int) -> None:
        self.world, self.name, self.operator = world, name, Operator(world, delegate)
        self.given = float("-inf")
        self.renewed: dict[str, float] = {}
        world.at(_LOOK, self._look)

    def _look(self) -> None:
        world, process = self.world, self.world.process(self.name)
        world.at(world.now + _LOOK, self._look)
        if not process.alive or process.paused or process.state is None:
            return
        self.renewed |= dict.fromkeys(world.reached_by_anyone_from(process), world.now)
        long = world.shape.timing.lost.total_seconds()
        since = world.now - long
        verdict = judge(process.state, {name for name, when in self.renewed.items() if when >= since})
        if verdict is not None and verdict.grant and self.given < since and self.operator.reset(process):
            self.given = world.now
