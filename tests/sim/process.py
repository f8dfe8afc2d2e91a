"""What a member does around its round machine: mail, disk, training, the outer state, signs of life.

The machine is the real one. The rest is a model with the same order of things: a promise is on disk before it is said,
nothing is applied that cannot be kept, what is undecided is repeated, who is behind asks for certificates.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from blake3 import blake3

from diloco.rounds import routing
from diloco.rounds.events import (
    Abandon,
    Answer,
    Arrived,
    CatchUp,
    Commit,
    Contribution,
    Effect,
    Event,
    Fetch,
    Gone,
    Halt,
    Leave,
    OrderCame,
    Persist,
    Reduce,
    Renew,
    Resync,
    Say,
    Seen,
    Stop,
    Tick,
    Trained,
    TwinSeen,
)
from diloco.rounds.leases import samples_of
from diloco.rounds.machine import advance
from diloco.rounds.moves import persist
from diloco.rounds.recovery import Kept, recover
from diloco.rounds.statements import Ready
from diloco.rounds.values import Lease, Value
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from tests.sim.disk import Share
from tests.sim.keeping import Keeping
from tests.sim.reducing import Reducing
from tests.sim.setting import admission_of, says

REPEAT = 2.0


class Process(Keeping):
    """A running node of a member. Two of one name are clones."""

    def _begin(self) -> None:
        """Ask everyone in reach for the chain, then begin where it ends."""
        reached = [p for p in self._near() if p.name != self.name]
        for other in {p.tip.digest: p for p in reached}.values():
            self.take_chain(other.shown())
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
            rival=self.disk.rival, since=self._since_promise(), frozen=self.disk.frozen,
        )  # fmt: skip
        if self.state.contribution is not None and self.state.lease is not None:
            self.gives = (self.state.lease.start, self.state.contribution)
        if self.disk.promise is None and not self.state.abstains:
            self.promising.persist(persist(self.state))
        self.later(0.05, self._ready)
        self.later(self.world.tick_of(self) * self.world.random.random(), self._tick)
        self._train()

    def _since_promise(self) -> list[Value]:
        """What was certified from the round of the promise on."""
        promise = self.disk.promise
        place = (0, -1) if promise is None else (promise.epoch, promise.round)
        return [c.value for c in self.disk.chain if (c.value.epoch, c.value.round) >= place]

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
        if self.world.judge is not None:
            self.world.judge.saved(promise)

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


def older(body: Any) -> Any:
    """A statement as a node says it that does not know the newest optional fields."""
    if isinstance(body, Ready):
        return replace(body, orders=())
    return body


def kind_of(effect: Effect) -> str:
    """The name of an effect; of ``Say`` with the statement's."""
    return f"Say {type(effect.body).__name__}" if isinstance(effect, Say) else type(effect).__name__
