"""One member of a run: feeds the round machine with what happens, and carries out what it asks for."""

import asyncio
from dataclasses import replace
from typing import Any

from diloco.member.accusing import Accusing
from diloco.member.applying import Applying
from diloco.member.auditing import Auditing
from diloco.member.beginning import begin
from diloco.member.chain import Chain
from diloco.member.entrance import Entrance
from diloco.member.exchange import Exchange
from diloco.member.findings import Findings
from diloco.member.following import Following
from diloco.member.forking import Forking
from diloco.member.holding import Holding
from diloco.member.leaving import leave
from diloco.member.messages import Heartbeat
from diloco.member.news import News
from diloco.member.obeying import Obeying, named
from diloco.member.outer import Outer
from diloco.member.outgoing import Outgoing
from diloco.member.presence import Presence
from diloco.member.promising import Promising
from diloco.member.reception import Reception
from diloco.member.repairing import Repairing
from diloco.member.restoring import Restoring
from diloco.member.setting import REPEAT, TICK, Setting, Tasks, Trainer
from diloco.member.telling import Telling
from diloco.member.training import Training
from diloco.outer_state import OuterState
from diloco.reduce.contribution import Frozen
from diloco.rounds.certificate import Certified
from diloco.rounds.events import (
    Abandon,
    Accuse,
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
    Note,
    Persist,
    Reduce,
    Renew,
    Resync,
    Say,
    Seen,
    Stop,
    Tick,
    Trained,
)
from diloco.rounds.evidence import Proof
from diloco.rounds.machine import advance
from diloco.rounds.records import Order
from diloco.rounds.state import State
from diloco.rounds.statements import Ready
from diloco.rounds.values import Decided, Lease
from diloco.rounds.waiting import Waiting
from diloco.store.checkpoints import Checkpoints
from diloco.store.contribution import ContributionStore
from diloco.store.ledger import Ledger
from diloco.store.reduced import ReducedStore
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from protocol.units import PeerId
from shardcast.service import Service, attach
from shardcast.shelf import Shelf

_EARLY = 64  # events that wait for a member which is still finding chain and state


class Member:
    """A member of a run. Make it before the endpoint starts, then ``run`` it once, in the endpoint's event loop.

    Args:
        setting: The run and the outside world.
        state: The outer state, holding the state of round 0 or any other of the run.
        trainer: The workers.
    """

    def __init__(self, setting: Setting, state: OuterState, trainer: Trainer) -> None:
        self.setting = setting
        sizes = [setting.codec.nbytes(n) for n in setting.rules.chunk_sizes]
        self.ledger = Ledger(setting.folder / "ledger.sqlite")
        checkpoints = Checkpoints(setting.folder / "checkpoints", setting.run, setting.grid)
        reduced = ReducedStore(setting.folder / "reduced", sizes)
        shelf = Shelf(setting.folder / "shelf")
        self._tasks = Tasks(self._failed)
        self._chain = Chain(setting, self.ledger)
        self._holding = Holding(setting, reduced, self.ledger)
        applying = self._applying = Applying(setting, state, checkpoints, self.ledger)
        self._restoring = Restoring(setting, state, applying, self.ledger, checkpoints, reduced, shelf)
        self._kept = ContributionStore(setting.folder / "contribution.bin", sizes)
        self._training = Training(setting, trainer, state, self._kept, self._trained)
        self._telling = Telling(setting)
        self._entrance = Entrance(setting)
        deadline = setting.genesis.sections.deadline
        self.presence = Presence(
            setting, interval=deadline.heartbeat, silence=deadline.silence, listener=self,
            circle=lambda: self.outgoing.circle(), expects=lambda peer: self.outgoing.expects(peer),
        )  # fmt: skip
        self.outgoing = Outgoing(
            setting, self._tasks, self._chain,
            dead=lambda peer: peer in self.presence.dead, attempt=lambda: self.presence.attempt_in(self.place),
            state=self._state,
        )  # fmt: skip
        self._accusing = Accusing(setting, self.ledger, self.outgoing, state=self._state, post=self.post)
        self._forking = Forking(setting, self._chain, self.outgoing, state=self._state, post=self.post)
        self._following = Following(
            setting, self._tasks, self._chain, self._forking, self.presence, state=self._state, post=self.post
        )
        self._obeying = Obeying(
            setting, self._chain, self._following, self.outgoing, state=self._state, post=self.post
        )
        self._findings = Findings(setting, state=self._now, post=self.post)
        self._auditing = Auditing(
            setting, self._tasks, self._findings, self.presence, self.outgoing, state=self._state
        )
        self._exchange = Exchange(
            setting, self._holding, self.presence, self.outgoing, self._findings, self._auditing,
            state=self._now, post=self.post, accused=self._accusing.accused,
        )  # fmt: skip
        self._outer = Outer(
            setting, self._tasks, trainer, self._training, self._holding, applying, self._restoring,
            Repairing(setting, state, applying), self.ledger,
            state=self._now, holders=self._exchange.holders, post=self.post,
        )  # fmt: skip
        self.service: Service = attach(setting.endpoint, shelf)
        Reception(
            setting.endpoint, self._holding, self._chain, self.presence, self._exchange, self._auditing, self
        )
        self._news = News(setting, self._tasks, self, self._accusing)
        setting.endpoint.handle(self._news.on_evidence)
        self._promising = Promising(self.ledger.save_promise, self._say, self._abstain)
        self.state: State | None = None
        self.started = asyncio.Event()
        self.finished = self._outer.finished
        self.left = asyncio.Event()
        self.banned = asyncio.Event()
        self.superseded = asyncio.Event()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        for proof in self._accusing.recall():
            self._news.remember(proof)

    # ---- life

    async def run(self) -> None:
        """Find the chain, restore the state, take part until cancelled or left."""
        try:
            self.state, applied, self._holding.frozen = await begin(
                self.setting, self._chain, self._restoring, self._kept, self._telling
            )
            self.setting.emit("member.joined", round=self.state.round)
            self._outer.begin(applied)
            self._tasks.keep(self.presence.run, "presence")
            self._tasks.spawn(self._outer.run(), "applying")
            self._tasks.spawn(self._tick(), "clock")
            self._tasks.spawn(self._repeat(), "repeating")
            self.started.set()
            while not self.left.is_set():
                self._take(await self._events.get())
        finally:
            await self._training.close()
            await self._holding.abandon()
            await self._tasks.close()

    def found(self, start: Certified) -> None:
        """Take the start record that this node wrote."""
        self.ledger.append(start)

    def take_admission(self, raw: bytes) -> None:
        """This node's admission was renewed; its anchor is newer, too."""
        self._chain.readmitted(raw)
        if self.state is not None:
            self.state = replace(self.state, admission=raw)

    async def drain(self) -> None:
        """Leave in good order, within the genesis' bound, and end ``run``."""
        self.setting.emit("drain.begin", round=self.state.round if self.state else -1)
        await leave(
            self.setting, self.presence, self._training, self._outer, state=self._state, post=self.post
        )
        self.left.set()
        self.post(Tick())

    # ---- events in

    def post(self, event: Event) -> None:
        """Queue an event for the round machine."""
        self._events.put_nowait(event)

    def arrived(self, sealed: Sealed[Any]) -> None:
        """A verified statement about a round came; before this member has begun a few are kept for it."""
        self._news.watch(sealed)
        if isinstance(sealed.message, Ready) and not self._entrance.lets_in(self.state, sealed):
            return
        if self.state is not None or self._events.qsize() < _EARLY:
            self.post(Arrived(sealed))

    @property
    def place(self) -> tuple[int, int] | None:
        """The epoch and round this member is in, None before it has begun."""
        return None if self.state is None else (self.state.epoch, self.state.round)

    def decided(self, message: Decided, sender: PeerId) -> None:
        """A peer showed a decided value.

        Raises:
            NodeError: It is a start record, which this member waits for, and does not hold.
        """
        self._following.decided(message, sender)

    def ordered(self, sealed: Sealed[Order]) -> None:
        """The operator's order came; anyone may pass it on."""
        self._obeying.ordered(sealed)

    @property
    def evidence(self) -> tuple[Proof, ...]:
        """Verified evidence against members."""
        return tuple(self._news.evidence.values())

    @property
    def found_out(self) -> tuple[str, ...]:
        """What members signed and no honest one can have signed, a sentence each."""
        return (*(proof.sentence for proof in self.evidence), *self._auditing.sentences.values())

    @property
    def order_number(self) -> int:
        """The highest order that a value has taken up; 0 before there is a value."""
        return self.state.value.order_number if self.state is not None else 0

    def give_order(self, sealed: Sealed[Order]) -> None:
        """Take an order and give it to the voters; by gossip all members hear of it."""
        self._obeying.give_order(sealed)
        self._news.tell_ordered(sealed)

    def standing(self) -> tuple[Certified, bytes]:
        """The value after which a new epoch would begin, and the state digest after it.

        Raises:
            NodeError: ``RND_CHAIN`` when this member's own state is not there yet.
        """
        return self._obeying.standing()

    def give_reset(self, raw: bytes) -> None:
        """Take a reset and give it to all members.

        Raises:
            NodeError: It does not follow this member's chain.
        """
        self._obeying.give_reset(raw)

    def seen(self, peer: PeerId) -> None:
        """A peer is alive that was not."""
        self.setting.emit("peer.seen", peer=peer)
        self.post(Seen(peer))
        self.outgoing.again(peer)

    def moved(self, peer: PeerId) -> None:
        """A peer came to another round or attempt; if it is this member's, what it heard before is told again."""
        beat = self.presence.heard[peer]
        if (beat.epoch, beat.round) == self.place:
            self.outgoing.again(peer)

    def gone(self, peer: PeerId, why: str) -> None:
        """A peer is believed dead."""
        self.setting.emit("peer.gone", peer=peer, why=why)
        self.post(Gone(peer))

    def _trained(self, lease: Lease, frozen: Frozen | None) -> None:
        if self.state is None or self.state.lease != lease:
            return
        self._holding.frozen = frozen
        self.post(Trained(lease.start, frozen.facts if frozen else Contribution()))

    # ---- effects out

    def _take(self, event: Event) -> None:
        state = self._now()
        try:
            self.state, effects = advance(state, event, self.setting.clock())
        except (
            Exception
        ) as error:  # a mistake in the machine is not for others to use: the state is as it was
            if not isinstance(event, Arrived) or event.sealed.sender == self.setting.me:
                raise
            self._failed(f"statement of {event.sealed.sender}", error)
            return
        for effect in effects:
            try:
                self._carry_out(effect, state)
            except NodeError as error:
                self._abstain(error)
        self._outer.work()

    def _carry_out(self, effect: Effect, before: State) -> None:
        match effect:
            case Persist():
                self._promising.persist(effect)
            case Say(body):
                self._promising.say(body)
            case Reduce():
                self._tasks.spawn(self._exchange.reduce(effect), f"reduce {effect.attempt}")
            case Abandon():
                self._tasks.spawn(self._holding.abandon(), "abandon")
            case Fetch(value, plan):
                self._tasks.spawn(self._exchange.fetch(value, plan), "fetch")
            case Commit(certified, spent):
                self._commit(before, certified, spent)
            case Renew(certified, behind):
                self._renew(before.tip, certified, behind)
            case Answer(peer, epoch, round_number):
                self.outgoing.answer(PeerId(peer), epoch, round_number)
            case CatchUp(peer):
                self.catch_up(PeerId(peer))
            case Resync(base):
                self._tasks.spawn(self._outer.resync(base), "resync")
            case Halt(reason, rival):
                self._forking.halt(reason, rival)
            case Stop():
                self.setting.emit("clone", code=str(Code.ID_CLONED))
                self.superseded.set()
            case Accuse(proof):
                self._news.accuse(proof, self.setting.me)
            case Note(kind, fields):
                self.setting.emit(kind, **dict(fields))

    def _abstain(self, error: NodeError) -> None:
        self.setting.emit("abstain", code=str(error.code), reason=error.sentence)

    def _state(self) -> State | None:
        return self.state

    def _now(self) -> State:
        assert self.state is not None
        return self.state

    def _say(self, body: Any) -> None:
        sealed = self.outgoing.seal(body)
        if isinstance(body, Ready) and body.commitment:
            self._holding.frozen_for = (body.epoch, body.round)
        self._telling.said(body)
        self.post(Arrived(sealed))
        self.outgoing.say(sealed)

    def _commit(self, state: State, certified: Certified, spent: bool) -> None:
        before, value = state.tip, certified.value
        asked = named(state.orders, value)
        self.outgoing.settle()
        self._promising.forget()
        if self._now().contribution is None:
            self._holding.frozen = None
        self._telling.committed(certified, spent)
        self._auditing.decided(value, self._holding.signatures(value), every="audit" in asked)
        if "checkpoint" in asked:
            self._applying.keep_after(value.round)
        self._outer.decide(certified)
        self._spread(before, certified)
        if self.setting.me in value.banned:
            self.setting.emit("banned", code=str(Code.RND_BANNED), round=value.round)
            self._tasks.spawn(self._end_banned(before, certified), "end of a banned member")

    async def _end_banned(self, before: Certified, certified: Certified) -> None:
        """The others may lack this member's vote for its ban, and cannot do without where they are few."""
        await self.outgoing.hand_over(before, certified)
        self.banned.set()

    def _renew(self, before: Certified, certified: Certified, behind: tuple[Certified, ...]) -> None:
        self.outgoing.settle()
        self._promising.forget()
        self._telling.renewed(certified)
        self._outer.renew(certified, behind)
        self._spread(before, certified)

    def _spread(self, before: Certified, certified: Certified) -> None:
        """Pass a decided value on, unless most others are further already."""
        if not self.presence.most_are_past((certified.value.epoch, certified.value.round + 1)):
            self._news.tell_decided(certified, self.outgoing.decided(before, certified))

    def catch_up(self, peer: PeerId) -> None:
        """Ask a peer that is ahead for the certificates since; few at a time, so that a silent one holds up nobody."""
        self._following.catch_up(peer)

    # ---- clock and reports

    async def _tick(self) -> None:
        while True:
            self.post(Tick())
            self._promising.retry()
            state = self._now()
            self._telling.phase(self.waiting(), state.round, state.attempt)
            self._following.catch_up_all()
            await asyncio.sleep(TICK.total_seconds())

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(REPEAT.total_seconds())
            self.outgoing.repeat()

    def waiting(self) -> Waiting:
        """What this member does or waits for now."""
        return self._telling.waiting(self.state)

    def heartbeat(self) -> Heartbeat | None:
        """What this member says with its signs of life."""
        if self.state is None:
            return None
        return self._telling.heartbeat(self.state, self.waiting(), self._training.share, self._outer.reached)

    def _failed(self, name: str, error: BaseException) -> None:
        self.setting.emit("task.failed", task=name, reason=f"{type(error).__name__}: {error}")
