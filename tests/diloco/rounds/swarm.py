"""Round machines in memory, on a virtual clock and a seed: what a rim does, with network, disk and training modelled.

Not a double of the machine: every node runs the real ``advance``. Signatures are a keyed hash.
"""

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from blake3 import blake3

from diloco.config import RunSections
from diloco.parameters import accepts
from diloco.rounds import beacon, evidence, founding
from diloco.rounds.certificate import Certified, certify
from diloco.rounds.events import (
    Accuse,
    Answer,
    Arrived,
    CatchUp,
    Commit,
    Contribution,
    Decision,
    Effect,
    Event,
    Fetch,
    Gone,
    Halt,
    Held,
    Leave,
    OrderCame,
    Persist,
    Reduce,
    Reduced,
    Renew,
    ResetCame,
    Resync,
    RivalCame,
    Say,
    Seen,
    StateReady,
    Stop,
    Tick,
    Trained,
    Unheld,
)
from diloco.rounds.machine import advance
from diloco.rounds.records import Order
from diloco.rounds.roster import bitmap, included
from diloco.rounds.rules import Rules, Seat
from diloco.rounds.state import Ballot, State, Timing
from diloco.rounds.statements import Close, Evidence, Ready, Vote
from diloco.rounds.values import ReducedChunk, Value, value_digest
from protocol.envelope import Sealed, seal, unseal
from protocol.errors import Code, NodeError
from protocol.messages import decode, encode
from protocol.units import PeerId, RunId

RUN = RunId("ab" * 32)
CHUNKS = (256, 256, 256)
SAMPLES = 8
OPERATOR = PeerId("operator")


@dataclass(frozen=True)
class KeyedSigner:
    """Signs with a hash keyed by the peer's name: as good as a signature where nobody cheats."""

    peer_id: PeerId

    def sign(self, data: bytes) -> bytes:
        return blake3(self.peer_id.encode() + data).digest()


def keyed_verify(peer: PeerId, data: bytes, signature: bytes) -> bool:
    return blake3(peer.encode() + data).digest() == signature


def seat_of(raw: bytes, peer: str) -> Seat | None:
    seated = {b"admit " + peer.encode(): True, b"guest " + peer.encode(): False}.get(raw)
    return None if seated is None else Seat(seated, blake3(raw).digest())


def unseal_order(raw: bytes) -> Sealed[Order]:
    order = unseal(raw, run=RUN, expect=Order, verifier=keyed_verify)
    if order.sender != OPERATOR:
        raise NodeError(Code.RND_CHAIN, "not the operator")
    return order


def state_after(base: bytes, value_digest: bytes) -> bytes:
    return blake3(b"state" + base + value_digest).digest()


@dataclass
class Disk:
    """What survives a restart."""

    chain: list[Certified] = field(default_factory=list)
    promise: Persist | None = None
    states: list[bytes] = field(default_factory=list)


@dataclass
class Node:
    name: PeerId
    disk: Disk
    state: State
    said: dict[tuple[Any, ...], Sealed[Any]] = field(default_factory=dict)
    holds: set[bytes] = field(default_factory=set)
    alive: bool = True
    life: int = 0
    paused: bool = False
    applied: list[bytes] = field(default_factory=list)
    votes: dict[tuple[int, int], bytes] = field(default_factory=dict)


class Swarm:
    """A run of ``len(names)`` members with seats, driven to a virtual time or a condition."""

    def __init__(
        self,
        names: Iterable[str],
        seed: int = 0,
        rounds: int = 6,
        delay: float = 0.05,
        loss: float = 0.0,
        fragments: int = 1,
    ) -> None:
        self.random = random.Random(seed)
        self.delay, self.loss = delay, loss
        self.salt = seed.to_bytes(8, "big")
        self.now = 0.0
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.counter = 0
        self.cut: Callable[[str, str], bool] = lambda a, b: False
        self.train_time: Callable[[str, int], float] = lambda name, r: 5.0 + self.random.random()
        self.rules = Rules(
            run=RUN,
            rounds=rounds,
            chunk_sizes=CHUNKS,
            fragments=fragments,
            samples=SAMPLES,
            samples_per_step=4,
            tokens_per_sample=16,
            weight_cap=4,
            open_share=1 / 3,
            max_voters=31,
            ghost_rounds=0,
            unseal_ready=lambda raw: unseal(raw, run=RUN, expect=Ready, verifier=keyed_verify),
            unseal_close=lambda raw: unseal(raw, run=RUN, expect=Close, verifier=keyed_verify),
            unseal_order=unseal_order,
            seat_of=seat_of,
            check_evidence=lambda raw: evidence.check(
                decode(Evidence, raw), lambda statement: unseal(statement, run=RUN, verifier=keyed_verify)
            ),
            accepts=lambda name, text: accepts(RunSections(), name, text),
        )
        self.timing = Timing()
        self.base = blake3(b"initial").digest()
        start = founding.make_start(self.rules, self.base, dict.fromkeys(names, True), {}, b"\7" * 32)
        data = encode(start)
        self.start = Certified(start, data, value_digest(data), start=b"signed")
        self.nodes: dict[str, Node] = {}
        self.guests: set[str] = set()
        self.halts: list[tuple[str, str]] = []
        self.liars: set[str] = set()
        self.accusations: list[tuple[str, evidence.Proof]] = []
        for name in names:
            self.add(name, [self.start], [self.base])
        for name in self.nodes:
            self._tick(name)

    def add(self, name: str, chain: list[Certified], states: list[bytes], seat: bool = True) -> Node:
        if not seat:
            self.guests.add(name)
        node = Node(PeerId(name), Disk(list(chain), None, list(states)), self._fresh(name, chain[-1]))
        self.nodes[name] = node
        self.later(0.01, name, StateReady(node.state.round, states[-1]))
        self._train(node)
        return node

    def _fresh(self, name: str, tip: Certified) -> State:
        boot = self.random.randbytes(16)
        admission = (b"guest " if name in self.guests else b"admit ") + name.encode()
        return State(
            me=name, rules=self.rules, timing=self.timing, boot=boot, started=int(self.now * 1000), tip=tip,
            beacon_key=blake3(b"secret of " + name.encode() + self.salt).digest(), admission=admission,
            began=self.now, attempt_began=self.now,
        )  # fmt: skip

    # ---- time

    def at(self, when: float, action: Callable[[], None]) -> None:
        self.counter += 1
        heapq.heappush(self.queue, (when, self.counter, action))

    def later(self, delay: float, name: str, event: Event) -> None:
        life = self.nodes[name].life
        self.at(self.now + delay, lambda: self.feed(name, event) if self.nodes[name].life == life else None)

    def run(self, until: float = 1e9, when: Callable[[], bool] = lambda: False) -> None:
        while self.queue and self.now < until and not when():
            self.now, _, action = heapq.heappop(self.queue)
            action()

    def _tick(self, name: str) -> None:
        node = self.nodes[name]
        if node.alive:
            self.feed(name, Tick())
            if int(self.now * 2) % 4 == 0:
                for sealed in list(node.said.values()):
                    self._post(node, sealed)
        self.at(self.now + 0.5, lambda: self._tick(name))

    # ---- faults

    def kill(self, name: str) -> None:
        node = self.nodes[name]
        node.alive, node.life = False, node.life + 1
        for other in self.nodes.values():
            if other.alive:
                self.later(1.0, other.name, Gone(name))

    def restart(self, name: str) -> None:
        node = self.nodes[name]
        node.alive, node.life, node.said, node.holds = True, node.life + 1, {}, set()
        tip = node.disk.chain[-1]
        state = self._fresh(name, tip)
        promise = node.disk.promise
        if promise is not None and (promise.epoch, promise.round) == (state.epoch, state.round):
            ballot = (
                Ballot(promise.voted_attempt - 1, promise.voted_value, promise.voted_close)
                if promise.voted_attempt
                else None
            )
            state = replace(state, promised=promise.promised, recovered=promise.promised, ballot=ballot)
            if ballot:
                node.holds.add(value_digest(ballot.value))
        node.state = state
        self.later(0.01, name, StateReady(state.round, node.disk.states[-1]))
        self._train(node)

    def order(
        self, number: int, kind: str, peer: str = "", to: Iterable[str] | None = None, **more: str
    ) -> None:
        """The operator gives an order to some members; to all unless told otherwise."""
        sealed = seal(KeyedSigner(OPERATOR), RUN, Order(number=number, kind=kind, peer=peer, **more))
        for name in self.nodes if to is None else to:
            self.feed(name, OrderCame(sealed))

    def leave(self, name: str) -> None:
        self.feed(name, Leave())

    # ---- the rim

    def feed(self, name: str, event: Event) -> None:
        node = self.nodes[name]
        if not node.alive:
            return
        node.state, effects = advance(node.state, event, self.now)
        for effect in effects:
            self._carry_out(node, effect)

    def _carry_out(self, node: Node, effect: Effect) -> None:
        match effect:
            case Persist():
                node.disk.promise = effect
            case Say(body):
                self._say(node, body)
            case Reduce():
                if effect.leader == node.name:
                    self._reduce(node, effect)
            case Fetch(value, _):
                self._fetch(node, value)
            case Commit(certified, spent):
                self._commit(node, certified, spent)
            case Answer(peer, _, round_number):
                self._send_chain(node, peer, round_number)
            case CatchUp(peer):
                other = self.nodes.get(peer)
                if other is not None:
                    self.later(self.delay, node.name, Tick())
                    self.at(
                        self.now + self.delay, lambda: self._send_chain(other, node.name, node.state.round)
                    )
            case Renew(certified):
                self._renew(node, certified)
            case Halt(reason, rival):
                self.halts.append((node.name, reason))
                for other in self.nodes.values():
                    if rival.start and other is not node and not self.cut(node.name, other.name):
                        self.later(self.delay, other.name, RivalCame(rival))
            case Stop():
                self.kill(node.name)
            case Accuse(proof):
                self.accusations.append((node.name, proof))
            case Resync(base):
                node.disk.states[-1] = base
                self.later(2.0, node.name, StateReady(node.state.round, base))
            case _:
                pass

    def _say(self, node: Node, body: Any) -> None:
        sealed = seal(KeyedSigner(node.name), RUN, body)
        if isinstance(body, Vote):
            key = (body.round, body.attempt)
            assert node.votes.setdefault(key, body.value) == body.value, "two votes in one attempt"
        kinds = {k: v for k, v in node.said.items() if k[1] == body.round and k[0] is not type(body)}
        node.said = {**kinds, (type(body), body.round, body.attempt): sealed}
        self.feed(node.name, Arrived(sealed))
        self._post(node, sealed)

    def _post(self, node: Node, sealed: Sealed[Any]) -> None:
        for other in self.nodes.values():
            if (
                other.name != node.name
                and not self.cut(node.name, other.name)
                and self.random.random() >= self.loss
            ):
                self.later(self.delay * (0.5 + self.random.random()), other.name, Arrived(sealed))
                self.later(self.delay, other.name, Seen(node.name))

    def _reduce(self, node: Node, asked: Reduce) -> None:
        life, round_number, plan = node.life, asked.round, asked.plan

        def done() -> None:
            if node.life != life or node.state.round != round_number:
                return
            included = [
                i
                for i, c in enumerate(plan.roster)
                if self.nodes[c.peer].alive and not self.cut(node.name, c.peer)
            ]
            bits = bitmap(included, len(plan.roster))
            named = b"".join(plan.roster[i].peer.encode() for i in included)
            chunks = tuple(
                ReducedChunk(digest=blake3(named + bytes((c, round_number))).digest(), included=bits)
                for c in range(len(plan.owners))
            )
            held = chunks if plan.roster else ()
            self.feed(node.name, Reduced(asked.epoch, asked.round, asked.attempt, held))

        self.at(self.now + 1.0 + self.random.random(), done)

    def _fetch(self, node: Node, data: bytes) -> None:
        digest = value_digest(data)
        life = node.life

        def done() -> None:
            if node.life != life:
                return
            if digest in node.holds:
                self.feed(node.name, Held(data))
                return
            for other in self.nodes.values():
                reachable = other.alive and not self.cut(node.name, other.name)
                if reachable and (digest in other.holds or digest in other.state.held):
                    node.holds.add(digest)
                    self.feed(node.name, Held(data))
                    return
            self.feed(node.name, Unheld(data, "nobody has the bytes"))

        self.at(self.now + 0.2 + self.random.random(), done)

    def _commit(self, node: Node, certified: Certified, spent: bool) -> None:
        disk = node.disk
        before = disk.chain[-1]
        votes = [unseal(raw, run=RUN, expect=Vote, verifier=keyed_verify) for raw in certified.votes]
        certify(before.value, before.digest, certified.data, certified.attempt, votes)
        disk.chain.append(certified)
        after = state_after(disk.states[-1], certified.digest)
        disk.states.append(after)
        node.applied.append(certified.digest)
        node.said = {}
        self.later(0.1, node.name, StateReady(node.state.round, after))
        self._train(node)

    def make_reset(self, name: str, peers: Iterable[str], mark: bytes = b"r", **more: Any) -> Certified:
        """A reset after a node's last certified value, as the operator would sign it."""
        disk = self.nodes[name].disk
        value = founding.make_reset(
            self.rules, disk.chain[-1].value, disk.chain[-1].digest, disk.states[-1], dict.fromkeys(peers, True),
            mark * 32, **more,
        )  # fmt: skip
        data = encode(value)
        return Certified(value, data, value_digest(data), start=b"signed")

    def give_reset(self, reset: Certified, root: bool = True, to: Iterable[str] | None = None) -> None:
        for name in self.nodes if to is None else to:
            self.feed(name, ResetCame(reset, root))

    def _renew(self, node: Node, certified: Certified) -> None:
        """Keep the chain up to the value that the reset names, and restore the state after it."""
        value = certified.value
        source = max(
            (other.disk for other in self.nodes.values()), key=lambda disk: self._reaches(disk, value)
        )
        disk = node.disk if self._reaches(node.disk, value) else source
        end = self._reaches(disk, value)
        node.disk.chain = [*disk.chain[:end], certified]
        node.disk.states = [*disk.states[:end], value.base]
        node.said = {}
        self.later(0.1, node.name, StateReady(node.state.round, value.base))
        self._train(node)

    @staticmethod
    def _reaches(disk: Disk, value: Value) -> int:
        """Links of a chain up to the one that a reset names; 0 where it is not there."""
        return next((i + 1 for i, c in enumerate(disk.chain) if c.digest == value.previous), 0)

    def _train(self, node: Node) -> None:
        lease = node.state.lease
        if (
            lease is None
            or node.state.finished
            or node.state.value.paused
            or node.state.contribution is not None
        ):
            return
        give = Contribution(
            lease.count * 16, lease.count, b"\1" * 32, (1.0,) * len(self.rules.slot(node.state.round))
        )
        if node.state.leaving:
            give = Contribution()
        wait = 0.0 if node.state.leaving else self.train_time(node.name, node.state.round)
        self.later(wait, node.name, Trained(lease.start, give))

    def _send_chain(self, node: Node, peer: str, round_number: int) -> None:
        if self.cut(node.name, peer) or not node.alive:
            return
        for certified in node.disk.chain:
            if certified.value.round >= round_number:
                self.later(self.delay, peer, Decision(certified))

    # ---- what is checked

    def live(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.alive]

    def check(self) -> None:
        """No two nodes differ in a decided round, no honest one is accused, no position is certified twice."""
        assert {proof.accused for _, proof in self.accusations} <= self.liars
        longest = max((node.disk.chain for node in self.nodes.values()), key=len)
        for node in self.nodes.values():
            for mine, theirs in zip(node.disk.chain, longest, strict=False):
                assert mine.digest == theirs.digest, f"{node.name} has another round {mine.value.round}"
        taken: set[int] = set()
        for before, after in pairwise(longest):
            committed = {e.peer: e.beacon_commitment for e in before.value.electorate}
            for reveal in after.value.reveals:
                assert beacon.commitment_to(reveal.nonce) == committed[reveal.peer]
            drawn = beacon.next_beacon(before.value.beacon, after.value.round, after.value.reveals)
            assert after.value.beacon == drawn or after.value.begins
            leases = {lease.peer: lease for lease in before.value.leases}
            for position, entry in enumerate(after.value.roster):
                if any(included(chunk, position) for chunk in after.value.chunks):
                    lease = leases[entry.peer]
                    span = set(range(lease.start, lease.start + entry.samples))
                    assert not span & taken, (
                        f"{entry.peer} trained positions twice in round {after.value.round}"
                    )
                    taken |= span
        last = longest[-1].value
        open_spans = {p for lease in last.leases for p in range(lease.start, lease.start + lease.count)}
        open_spans |= {p for span in last.returned for p in range(span.start, span.start + span.count)}
        assert taken | open_spans == set(range(last.cursor)), "a sample position was lost"
        assert not taken & open_spans, "a certified position may be leased again"


def storm(count: int, seed: int, loss: float = 0.3, until: float = 90.0) -> Swarm:
    """Loss, cuts that move, kills and restarts; then peace."""
    names = ("anna", "bert", "carl", "dora", "emil")[:count]
    swarm = Swarm(names, rounds=4, seed=seed, loss=loss)
    down: list[str] = []
    swarm.train_time = lambda name, r: 1.0 + swarm.random.random()

    def blow() -> None:
        choice = swarm.random.random()
        if down and choice < 0.4:
            swarm.restart(down.pop())
        elif len(down) < count // 2 and choice < 0.7:
            victim = swarm.random.choice([n for n in names if n not in down])
            swarm.kill(victim)
            down.append(victim)
        else:
            side = {n for n in names if swarm.random.random() < 0.5}
            swarm.cut = lambda a, b: (a in side) != (b in side)
        if swarm.now < until:
            swarm.at(swarm.now + 0.5 + 4 * swarm.random.random(), blow)
        else:
            for name in list(down):
                swarm.restart(name)
            swarm.loss, swarm.cut = 0.0, lambda a, b: False

    swarm.at(1.5, blow)
    swarm.run(until=until + 200, when=lambda: all(n.alive and n.state.finished for n in swarm.nodes.values()))
    return swarm
