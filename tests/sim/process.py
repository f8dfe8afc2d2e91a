"""What a member does around its round machine: mail, disk, training, the outer state, signs of life.

The machine is the real one. The rest is a model with the same order of things: a promise is on disk before it is said,
nothing is applied that cannot be kept, what is undecided is repeated, who is behind asks for certificates.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from diloco.member.promising import Promising
from diloco.rounds import routing
from diloco.rounds.certificate import Certified
from diloco.rounds.events import (
    Abandon,
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
    TwinSeen,
    Unheld,
)
from diloco.rounds.leases import samples_of
from diloco.rounds.machine import advance
from diloco.rounds.moves import persist
from diloco.rounds.proofs import Adoption
from diloco.rounds.recovery import Kept, recover, standing
from diloco.rounds.state import State
from diloco.rounds.statements import Ready
from diloco.rounds.values import Decided, Lease, Value, parse_value
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from tests.sim.reducing import Reducing
from tests.sim.setting import admission_of, says

if TYPE_CHECKING:
    from tests.sim.world import World

REPEAT = 2.0
_ASK_BYTES = 150
_STATES = 16


@dataclass
class Disk:
    """What survives a restart.

    Attributes:
        chain: The certified values that stand, oldest first.
        promise: What ``Persist`` wrote last.
        base: Digest of the outer state.
        reached: The round that starts from it.
        states: The states of the last rounds, that can be restored from checkpoints and reduced bytes.
        rival: The other side of a fork.
        chunks: Digests of the reduced chunks that are kept.
        frozen: The last frozen contribution.
        forgot: It once held nothing, or no room for a contribution.
        slow: Seconds that a write takes.
        full: Nothing can be written.
    """

    chain: list[Certified]
    base: bytes
    reached: int = 0
    states: dict[int, bytes] = field(default_factory=dict)
    rival: Certified | None = None
    promise: Persist | None = None
    chunks: set[bytes] = field(default_factory=set)
    frozen: Kept | None = None
    forgot: bool = False
    slow: float = 0.0
    full: bool = False

    def reach(self, round_number: int, base: bytes) -> None:
        """The outer state of a round is there."""
        self.reached, self.base = round_number, base
        self.states[round_number] = base
        while len(self.states) > _STATES:
            del self.states[min(self.states)]

    def go_back(self, most: int) -> None:
        """What comes after a round is void: the newest state up to it is the one that is there."""
        self.states = {number: base for number, base in self.states.items() if number <= most}
        if self.reached > most:
            self.reached, self.base = max(self.states.items(), default=(-1, b""))


@dataclass
class Habits:
    """What is wrong with a member for a while, or for ever.

    Attributes:
        pace: Its training takes this many times longer.
        claims: It reports this many times the tokens it trained on.
        old: It speaks a version without the newest optional fields.
        rate: Its monotonic clock runs this fast.
        offset: ... and shows this many seconds more.
    """

    pace: float = 1.0
    claims: int = 1
    old: bool = False
    rate: float = 1.0
    offset: float = 0.0


@dataclass
class Share:
    """Training on a lease: done at a time, if nothing stops it."""

    lease: Lease
    done_at: float


@dataclass
class Crash:
    """The process dies right before or after it carries out its next effect of a kind."""

    kind: str
    after: bool
    down: float | None


class Process:
    """A running node of a member. Two of one name are clones.

    Args:
        world: Where it runs.
        name: Its peer id.
        seated: Whether its admission has a seat.
        chain: What is on its disk.
    """

    def __init__(self, world: "World", name: str, seated: bool, chain: list[Certified]) -> None:
        self.world, self.name, self.seated = world, name, seated
        self.disk = Disk(list(chain), chain[0].value.base)
        self.disk.reach(0, self.disk.base)
        self.habits = Habits()
        self.state: State | None = None
        self.alive = self.paused = self.refuses = False
        self.silent = False
        self.life = 0
        self.sent = 0
        self.sending_until = 0.0
        self.busy_until = 0.0
        self.unfinished: list[Effect] = []
        self.backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.said: dict[type[Any], Sealed[Any]] = {}
        self.told: dict[str, dict[type[Any], tuple[float, float]]] = {}
        self.places: dict[str, tuple[int, int, int] | None] = {}
        self.promising = Promising(self._save, self._say, lambda error: None)
        self.known: dict[str, float] = {}
        self.dead: set[str] = set()
        self.share: Share | None = None
        self.gives: tuple[int, Contribution] | None = None
        self.reducing: Reducing | None = None
        self.draining = self.left = False
        self.drain_until = 0.0
        self.crash: Crash | None = None
        self.disturbed = 0.0
        self._asked = self._looked = -1.0
        self.started = 0
        self.trained: tuple[Lease, int] | None = None
        self._answered: dict[str, float] = {}
        self._repeat_at = 0.0
        self._inbox: list[Event] = []
        self._working = False
        self._applying = False

    # ---- life

    def boot_up(self, boot: bytes = b"") -> None:
        """Start: find chain and state, then take part."""
        self.boot = boot or self.world.random.randbytes(16)
        self.alive, self.paused, self.refuses = True, False, False
        self.life += 1
        self.state, self.share, self.gives, self.reducing = None, None, None, None
        self.said, self.known, self.dead, self.backlog = {}, {}, set(), []
        self.trained = None
        self.promising = Promising(self._save, self._say, lambda error: None)
        self.unfinished = []
        self.told, self.places = {}, {}
        self._answered, self._inbox, self._working, self._applying = {}, [], False, False
        self.draining = False
        self.busy_until = self.sending_until = self.world.now
        self.later(0.01 + 0.05 * self.world.random.random(), self._begin)

    def kill(self, *, refuses: bool = True) -> None:
        """As ``kill -9``; with ``refuses`` its port refuses connections from then on, else its machine is silent."""
        self.alive, self.refuses = False, refuses
        self.life += 1
        self.state, self.reducing = None, None
        self.disturbed = self.world.now
        self.world.troubled = True

    def wipe(self) -> None:
        """Lose everything on disk."""
        self.world.wiped = True
        self.disk = Disk([self.world.start], self.world.start.value.base, forgot=True)
        self.disk.reach(0, self.disk.base)

    def pause(self) -> None:
        """As ``kill -STOP``."""
        self.paused = self.world.troubled = True
        self.disturbed = self.world.now

    def resume(self) -> None:
        """As ``kill -CONT``: what came meanwhile is there at once."""
        if not self.paused:
            return
        self.paused = False
        self.disturbed = self.world.now
        unfinished, self.unfinished = self.unfinished, []
        for effect in unfinished:
            self._go_on(self.life, effect)
        backlog, self.backlog = self.backlog, []
        for action, args in backlog:
            self.later(0.0, action, *args)

    def later(self, delay: float, action: Callable[..., None], *args: Any) -> None:
        """Let this process do something, if it still runs then."""
        self.world.at(self.world.now + delay, self._fire, self.life, action, args)

    def _fire(self, life: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.life != life or not self.alive:
            return
        if self.paused:
            self.backlog.append((action, args))
        elif self.busy_until > self.world.now:
            self.world.at(self.busy_until, self._fire, life, action, args)
        else:
            action(*args)

    def _go_on(self, life: int, effect: Effect) -> None:
        """Carry out an effect that had to wait for the disk."""
        if self.life == life and self.alive:
            if self.paused:
                self.unfinished.append(effect)
            else:
                self._carry_out(effect)

    @property
    def clock(self) -> float:
        """Its monotonic clock."""
        return self.world.now * self.habits.rate + self.habits.offset

    @property
    def tip(self) -> Certified:
        """The last certified value on its disk."""
        return self.disk.chain[-1]

    def _begin(self) -> None:
        """Ask everyone in reach for the chain, then begin where it ends."""
        reached = [p for p in self._near() if p.name != self.name]
        for other in {p.tip.digest: p for p in reached}.values():
            self.take_chain(other.disk.chain)
        alone = len(self.disk.chain) == 1
        if alone and self.world.newest > (0, -1) and not any(len(p.disk.chain) > 1 for p in reached):
            self.later(0.5, self._begin)  # the run is under way, and nobody here has anything of it
            return
        if not self._restore(reached):
            self.later(0.5, self._begin)
            return
        self.started = int(self.world.now * 1000)
        self.state = recover(
            self.name, self.world.rules, self.world.shape.timing, boot=self.boot, tip=self.tip,
            started=self.started,
            beacon_key=blake3(b"secret of " + self.name.encode()).digest(),
            admission=admission_of(self.name, self.seated), promise=self.disk.promise, now=self.clock,
            rival=self.disk.rival, frozen=self.disk.frozen,
        )  # fmt: skip
        if self.state.contribution is not None and self.state.lease is not None:
            self.gives = (self.state.lease.start, self.state.contribution)
        if self.disk.promise is None and not self.state.abstains:
            self.promising.persist(persist(self.state))
        self.later(0.05, self._ready)
        self.later(self.world.tick_of(self) * self.world.random.random(), self._tick)
        self._train()

    # ---- the machine

    def feed(self, event: Event) -> None:
        """Give the machine an event, and carry out what it asks for."""
        self._inbox.append(event)
        if self._working:
            return
        self._working = True
        life = self.life
        while self._inbox and self.life == life and self.state is not None:
            self._take(self._inbox.pop(0))
        if self.life == life:
            self._working = False

    def _take(self, event: Event) -> None:
        world, before = self.world, self.state
        assert before is not None
        world.events += 1
        self.state, effects = advance(before, event, self.clock)
        if world.judge is not None:
            world.judge.moved(self, before, self.state, event, effects)
        life, lag = self.life, 0.0
        for effect in effects:
            if self.life != life:
                return
            if type(effect) is Persist:
                lag += self.disk.slow
            if lag:
                world.at(world.now + lag, self._go_on, life, effect)
            else:
                self._carry_out(effect)
        if lag:
            self.busy_until = world.now + lag

    def _carry_out(self, effect: Effect) -> None:
        crash = self.crash
        if crash is not None and crash.kind == kind_of(effect):
            self.crash = None
            if crash.after:
                self._do(effect)
            self.world.crashed(self, crash)
            return
        self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Say(body):
                self.promising.say(body)
            case Persist():
                self.promising.persist(effect)
            case Reduce():
                self.reducing = Reducing(self, effect)
            case Abandon():
                self.reducing = None
            case Fetch(value, _):
                self._fetch(value, 0)
            case Commit(certified, _):
                self._commit(certified)
            case Renew(certified, behind):
                self._renew(certified, behind)
            case Answer(peer, epoch, round_number):
                self._answer(peer, epoch, round_number)
            case CatchUp(peer):
                self.ask(peer)
            case Resync(base):
                self._resync(base)
            case Halt(_, rival):
                self._halt(rival)
            case Stop():
                self.kill()
            case _:
                pass

    # ---- mail

    def _save(self, promise: Persist) -> None:
        if self.disk.full:
            raise NodeError(Code.STO_FULL, "The disk is full.")
        self.disk.promise = promise

    def _say(self, body: Any) -> None:
        assert self.state is not None
        if self.habits.old:
            body = older(body)
        sealed = says(self.name, body)
        self.world.opened.keep(sealed)
        if self.world.judge is not None:
            self.world.judge.said(self, sealed)
        kind = type(body)
        self.said[kind] = sealed
        for told in self.told.values():
            told.pop(kind, None)
        self.tell(kind, self.hearers())
        self.feed(Arrived(sealed))

    def hearers(self) -> set[str]:
        """Who needs what this member says of its round."""
        state = self.state
        if state is None:
            return set()
        attempt = max(state.attempt, self._attempt_of_others())
        return routing.hearers(self.world.rules, state.value, self.name, self.world.named.keys(), attempt)

    def _attempt_of_others(self) -> int:
        """The highest attempt that the signs of life of voters show."""
        state, world = self.state, self.world
        if state is None:
            return 0
        found = 0
        for name in routing.watchers(state.value, self.name):
            for process in world.named.get(name, ()):
                theirs = process.state
                if theirs is not None and theirs.tip is state.tip and world.hears(self, name):
                    found = max(found, theirs.attempt)
        return found

    def tell(self, kind: type[Any], names: Iterable[str]) -> None:
        """Send what was said last of a kind; it is sent again after pauses that double."""
        sealed, world = self.said[kind], self.world
        size, send, event = len(sealed.raw), world.send, Arrived(sealed)
        for name in sorted(names):
            told = self.told.setdefault(name, {})
            gap = 2 * told[kind][1] if kind in told else world.repeat_after
            told[kind] = (world.now + gap, gap)
            for process in world.named.get(name, ()):
                send(self, process, size, process.hear, event)

    def _repeat(self) -> None:
        now = self.world.now
        if now < self._repeat_at or not self.said:
            return
        self._repeat_at = now + REPEAT
        for name in sorted(self.hearers()):
            told = self.told.get(name, {})
            for kind in list(self.said):
                if kind not in told or told[kind][0] <= now:
                    self.tell(kind, (name,))

    def again(self, name: str) -> None:
        """A peer came, or moved to another round or attempt: what it heard before may have been of no use to it."""
        self.told.pop(name, None)
        if name in self.hearers():
            for kind in list(self.said):
                self.tell(kind, (name,))

    def hear(self, event: Arrived) -> None:
        """A statement came."""
        if self.state is not None:
            self.feed(event)

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
        self.world.send(self, by, _ASK_BYTES * len(self.disk.chain), by.offered, list(self.disk.chain), self)

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

    def after(self, epoch: int, round_number: int) -> list[Certified]:
        """Certified values after a place, as its disk has them."""
        place = (epoch, round_number)
        links = [c for c in self.disk.chain if (c.value.epoch, c.value.round) > place]
        return [c for c in links if c.votes or c.start]

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
        if certified.start:
            last = next(i for i, c in enumerate(chain) if c.digest == value.previous)
            self.disk.chain = chain = chain[: last + 1]
            self.disk.go_back(value.round + 1)
            self.disk.rival = None
        chain.append(certified)
        self.world.newest = max(self.world.newest, (value.epoch, value.round))

    # ---- signs of life

    def alive_is(self, name: str) -> None:
        """A peer gave a sign of life."""
        new = name not in self.known or name in self.dead
        self.known[name] = self.world.now
        if new:
            self.dead.discard(name)
            if self.state is not None:
                self.feed(Seen(name))
            self.again(name)

    def _tick(self) -> None:
        life = self.life
        for duty in (
            self._take_time,
            self._look_around,
            self._look_for_twins,
            self._catch_up,
            self._repeat,
            self._drain,
            self._apply,
        ):
            duty()
            if self.life != life:
                return
        self.later(self.world.tick_of(self), self._tick)

    def _take_time(self) -> None:
        self.feed(Tick())
        self.promising.retry()

    def _look_around(self) -> None:
        world, life = self.world, self.life
        if not world.troubled and self.known:
            return
        for name in self._circle():
            if self.life != life:
                return
            if world.hears(self, name):
                self.alive_is(name)
            elif name in self.known and name not in self.dead:
                refused = all(p.refuses for p in world.named[name] if not p.alive) and not any(
                    p.alive for p in world.named[name]
                )
                if refused or world.now - self.known[name] > world.shape.silence:
                    self.dead.add(name)
                    self.feed(Gone(name))

    def _look_for_twins(self) -> None:
        """The directory shows a process that has the same key, sooner or later."""
        for process in self.world.named[self.name]:
            there = process is not self and process.state is not None and self.world.linked(self, process)
            if there and self.world.random.random() < 0.1:
                self.feed(TwinSeen(process.boot, process.started))

    def _circle(self) -> list[str]:
        """With whom this member exchanges signs of life, and who told it so far."""
        state = self.state
        assert state is not None
        circle = self.world.circle_of(state.tip, self.name)
        if state.leaving:
            circle = circle | routing.voters(state.value) - {self.name}
        return sorted(circle)

    def _moved(self) -> None:
        """Who has come to this member's place since the last look may have missed what was said there before."""
        state, world = self.state, self.world
        assert state is not None
        if not self.said:
            return
        for name in self.hearers():
            for process in world.named.get(name, ()):
                theirs = process.state
                place = None if theirs is None else (theirs.epoch, theirs.round, theirs.attempt)
                if self.places.get(name) != place and world.hears(self, name):
                    self.places[name] = place
                    if place is not None and place[:2] == (state.epoch, state.round):
                        self.again(name)

    def _catch_up(self) -> None:
        assert self.state is not None
        here = (self.state.epoch, self.state.round - 1)
        if here >= self.world.newest:
            return
        ahead = [
            p.name
            for p in self.world.living()
            if p.state is not None and p.name != self.name and (p.state.epoch, p.state.round - 1) > here
        ]
        heard = [name for name in ahead if self.world.hears(self, name)]
        if heard:
            self.ask(self.world.random.choice(heard))

    # ---- training and contribution

    def _train(self) -> None:
        """Give the workers what is due; a lease that goes on is trained on."""
        state = self.state
        if state is None or state.finished or state.contribution is not None:
            return
        lease = state.lease
        if lease is None or state.value.paused or (self.share is not None and self.share.lease != lease):
            self.share = None
        if lease is None or state.value.paused:
            return
        if state.leaving:
            self.later(0.05, self._trained, lease, 0)
            return
        if self.share is not None and self.share.lease == lease:
            return
        if (
            self.trained is not None and self.trained[0] == lease
        ):  # of another fragment: the steps are in the weights
            self.later(0.05, self._trained, *self.trained)
            return
        shape, spread = self.world.shape, 0.8 + 0.4 * self.world.random.random()
        samples = samples_of(lease)
        seconds = shape.train * self.habits.pace * spread * samples / shape.samples
        self.share = Share(lease, self.world.now + seconds)
        self.later(seconds, self._trained, lease, samples)

    def _trained(self, lease: Lease, samples: int) -> None:
        state = self.state
        if state is None or state.lease != lease or state.contribution is not None:
            return
        tokens = samples * 16 * self.habits.claims
        norms = (1.0,) * len(self.world.rules.slot(state.round))
        named = f"{self.name} {lease.start} {samples} {self.life}".encode()
        give = Contribution(tokens, samples, blake3(named).digest(), norms)
        if not samples:
            give = Contribution()
        self.gives, self.share = (lease.start, give), None
        self.trained = (lease, samples) if samples else None
        self.disk.forgot |= self.disk.full
        if not self.disk.full:
            self.disk.frozen = Kept(lease, state.round, give)
        self.feed(Trained(lease.start, give))

    def freeze_again(self) -> None:
        """What the machine kept of a contribution decides what this process still has."""
        state = self.state
        if state is None or state.contribution is None:
            self.gives = None

    # ---- bytes, the outer state

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
            place = next(i for i, c in enumerate(self.disk.chain) if c.digest == link.value.previous)
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

    def _near(self) -> "Iterator[Process]":
        """Processes in reach."""
        return (p for p in self.world.processes if p is not self and self.world.linked(self, p))

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

    # ---- orders and leaving

    def ordered(self, order: Sealed[Any]) -> None:
        """The operator's order came."""
        if self.state is not None and order.message.number > self.state.value.order_number:
            self.feed(OrderCame(order))

    def drain(self) -> None:
        """Leave in good order."""
        if self.state is None or self.draining:
            return
        self.draining, self.drain_until = True, self.world.now + self.world.shape.drain
        self.disturbed = float("inf")
        self.feed(Leave())
        if self.state is not None and self.state.lease is not None and self.state.contribution is None:
            self._trained(self.state.lease, 0)

    def _drain(self) -> None:
        state = self.state
        if not self.draining or state is None:
            return
        value = state.value
        here = any(e.peer == self.name for e in value.electorate) or self.name in value.members
        belongs = here and self.name not in value.left
        if belongs and not state.finished and self.world.now < self.drain_until:
            return
        have = {
            p.name
            for p in self.world.living()
            if p.state is not None and p.disk.reached >= state.round and self.world.hears(self, p.name)
        }
        stay = {p.name for p in self.world.living() if self.world.hears(self, p.name)} - {
            *value.left,
            self.name,
        }
        acknowledged = state.finished or (
            not stay - have if value.stopped else state.is_quorum(have | {self.name})
        )
        if acknowledged or self.world.now >= self.drain_until:
            self.left = True
            self.kill()


def state_after(base: bytes, value: Value) -> bytes:
    """The digest that stands for the outer state after a round."""
    if not value.chunks:
        return base
    return blake3(b"state" + base + b"".join(entry.digest for entry in value.chunks)).digest()


def older(body: Any) -> Any:
    """A statement as a node says it that does not know the newest optional fields."""
    if isinstance(body, Ready):
        return replace(body, orders=())
    return body


def kind_of(effect: Effect) -> str:
    """The name of an effect; of ``Say`` with the statement's."""
    return f"Say {type(effect.body).__name__}" if isinstance(effect, Say) else type(effect).__name__
