"""The operator of a simulated run: gives numbered orders, and begins a new epoch where a quorum is lost for good."""

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from diloco.rounds import founding
from diloco.rounds.certificate import Certified
from diloco.rounds.records import Order, Reset
from diloco.rounds.values import Boot, parse_value, value_digest
from protocol.messages import encode
from tests.sim.setting import OPERATOR, says

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World


class Operator:
    """Signs with the operator's key, through whichever node it sits at.

    Args:
        world: The run.
    """

    def __init__(self, world: "World") -> None:
        self.world = world
        self.number = 0

    def order(self, at: "Process", kind: str, peer: str = "", name: str = "", value: str = "") -> None:
        """Give an order to everyone in reach of a process."""
        taken = max(p.tip.value.order_number for p in self.world.processes)
        self.number = max(self.number, taken) + 1
        sealed = says(OPERATOR, Order(number=self.number, kind=kind, peer=peer, name=name, value=value))
        for process in self.world.processes:
            if process is at or self.world.linked(at, process):
                process.later(self.world.shape.latency, process.ordered, sealed)

    def reset(self, at: "Process") -> bool:
        """Begin a new epoch with the last value and the members that a process reaches; whether that could be done."""
        world = self.world
        near = [
            p
            for p in world.living()
            if p.state is not None and not p.left and (p is at or world.linked(at, p))
        ]
        if at not in near:
            return False
        at_hand = [
            (tip.value.epoch, tip.value.round, tip, p) for p in near if (tip := _reached(p)) is not None
        ]
        if not at_hand or not any(p.seated for p in near):
            return False
        last = max(entry[:2] for entry in at_hand)
        tips = [(tip, holder) for *place, tip, holder in at_hand if tuple(place) == last]
        bases = Counter(holder.disk.base for _, holder in tips)
        tip, holder = max(tips, key=lambda entry: bases[entry[1].disk.base])
        epoch = 1 + max(p.tip.value.epoch for p in near)
        peers = {p.name: p.seated for p in near if p.name not in tip.value.banned}
        value = founding.make_reset(
            world.rules, tip.value, tip.digest, holder.disk.base, peers, world.random.randbytes(32)
        )
        boots = tuple(
            Boot(peer=p.name, nonce=p.state.boot) for p in near if p.state is not None and p.state.abstains
        )
        data = encode(replace(value, epoch=epoch, boots=boots))
        raw = says(OPERATOR, Reset(value=data)).raw
        certified = Certified(parse_value(data), data, value_digest(data), start=raw)
        for process in near:
            world.send(at, process, len(raw), process.decided, certified, at)
        return True


def _reached(process: "Process") -> Certified | None:
    """The last value whose outer state a process has."""
    return next((c for c in reversed(process.disk.chain) if c.value.round == process.disk.reached - 1), None)
