"""One member of a run: feeds the round machine with what happens, and carries out what it asks for."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

from diloco.member.applying import Applying
from diloco.member.auditing import Auditing
from diloco.member.beginning import begin
from diloco.member.chain import Chain
from diloco.member.entrance import Entrance
from diloco.member.exchange import Exchange
from diloco.member.findings import Findings
from diloco.member.holding import Holding
from diloco.member.leaving import leave
from diloco.member.messages import Heartbeat
from diloco.member.news import News
from diloco.member.outer import Outer
from diloco.member.outgoing import Outgoing
from diloco.member.presence import Presence
from diloco.member.promising import Promising
from diloco.member.reception import Reception
from diloco.member.repairing import Repairing
from diloco.member.restoring import Restoring
from diloco.member.setting import REPEAT, TICK, Setting, Tasks, Trainer, anchor_of, order_right
from diloco.member.telling import Telling, belongs
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
    Decision,
    Effect,
    Event,
    EvidenceCame,
    Fetch,
    Gone,
    Halt,
    Note,
    OrderCame,
    Persist,
    Reduce,
    Renew,
    ResetCame,
    Resync,
    RivalCame,
    Say,
    Seen,
    Stop,
    Tick,
    Trained,
)
from diloco.rounds.evidence import Proof
from diloco.rounds.machine import advance
from diloco.rounds.state import State
from diloco.rounds.statements import Decided, Lease, Order, Ready, Vote
from diloco.rounds.waiting import Waiting, waiting
from diloco.store.checkpoints import Checkpoints
from diloco.store.ledger import Ledger, to_message
from diloco.store.reduced import ReducedStore
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from protocol.units import PeerId
from shardcast.service import Service, attach
from shardcast.shelf import Shelf

_MOST_ASKED = 3  # peers that are asked for certificates at the same time
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
        applying = Applying(setting, state, checkpoints, self.ledger)
        self._restoring = Restoring(setting, state, applying, self.ledger, checkpoints, reduced, shelf)
        self._training = Training(setting, trainer, state, self._trained)
        self._telling = Telling(setting)
        self._entrance = Entrance(setting)
        deadline = setting.genesis.sections.deadline
        self.presence = Presence(
            setting, interval=deadline.heartbeat, silence=deadline.silence, listener=self
        )
        self.outgoing = Outgoing(
            setting, self._tasks, self._chain,
            dead=lambda peer: peer in self.presence.dead, attempt=self._attempt_of_others, state=lambda: self.state,
        )  # fmt: skip
        self._findings = Findings(setting, state=self._now, post=self.post)
        self._auditing = Auditing(
            setting, self._tasks, self._findings, self.presence, self.outgoing, state=lambda: self.state
        )
        self._exchange = Exchange(
            setting, self._holding, self.presence, self.outgoing, self._findings, self._auditing,
            state=self._now, post=self.post, accused=self.accused,
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
        self._news = News(setting, self._tasks, self)
        setting.endpoint.handle(self._news.on_evidence)
        self._promising = Promising(self.ledger.save_promise, self._say, self._abstain)
        self.state: State | None = None
        self.started = asyncio.Event()
        self.finished = self._outer.finished
        self.left = asyncio.Event()
        self.banned = asyncio.Event()
        self.superseded = asyncio.Event()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._recall_evidence()
        self._asking: set[PeerId] = set()

    # ---- life

    async def run(self) -> None:
        """Find the chain, restore the state, take part until cancelled or left."""
        try:
            self.state, applied = await begin(self.setting, self._chain, self._restoring, self._telling)
            self.setting.emit("member.joined", round=self.state.round)
            self._outer.begin(applied)
            self._tasks.keep(self.presence.run, "presence")
            self._tasks.spawn(self._outer.run(), "applying")
            self._tasks.spawn(self._tick(), "clock")
            self._tasks.spawn(self._repeat(), "repeating")
            self.started.set()
            while not self.left.is_set():
                event = await self._events.get()
                self._take(event)
        finally:
            await self._training.close()
            await self._holding.abandon()
            await self._tasks.close()

    def found(self, start: Certified) -> None:
        """Take the start record that this node wrote."""
        self.ledger.append(start)

    def take_admission(self, raw: bytes) -> None:
        """This node's admission was renewed; its anchor is newer, too."""
        anchor = anchor_of(raw, self.setting.genesis, self.setting.me)
        if anchor is not None:
            self._chain.anchor = anchor
        if self.state is not None:
            self.state = replace(self.state, admission=raw)

    async def drain(self) -> None:
        """Leave in good order, within the genesis' bound, and end ``run``."""
        self.setting.emit("drain.begin", round=self.state.round if self.state else -1)
        await leave(
            self.setting, self.presence, self._training, self._outer, state=lambda: self.state, post=self.post
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
        if self.state is None:
            if self.ledger.tip() is None and message.start:
                self.ledger.append(self._chain.read(None, message))
            return
        if message.previous and message.previous != self.state.tip.digest:
            if (message.epoch, message.round) > (self.state.epoch, self.state.round):
                self.catch_up(sender)
            else:
                self._compare(self.state, message)
            return
        try:
            certified = self._chain.read(self.state.tip, message)
            self.post(self._event_of(certified))
        except NodeError as error:
            if error.code != Code.RND_CHAIN:
                self.setting.emit("decided.refused", code=str(error.code), reason=error.sentence)
            else:  # older or newer than the tip: no news, unless it shows that the chain has forked
                self._compare(self.state, message)

    async def _look_for_fork(self, peer: PeerId) -> None:
        """A peer's chain does not follow this one: see where they part."""
        state = self.state
        with suppress(NodeError, ValueError):
            if state is not None and (rival := await self._chain.fork_at(peer, state.tip)) is not None:
                self.post(RivalCame(rival))

    def _compare(self, state: State, message: Decided) -> None:
        with suppress(NodeError, ValueError):
            rival = self._chain.rival(state.tip, message)
            if rival is not None and not state.halted:
                self.post(RivalCame(rival))

    def _halt(self, reason: str, rival: Certified) -> None:
        """Keep both sides of a fork and show them to everyone."""
        self.ledger.keep_rival(rival)
        mine = self.ledger.origin() if rival.start else self.ledger.get(rival.value.round)
        self.setting.emit(
            "halted", code=str(Code.RND_FORKED), reason=reason, epoch=rival.value.epoch,
            round=rival.value.round, rival=rival.digest.hex(), mine=mine.digest.hex() if mine else "",
        )  # fmt: skip
        for side in (rival, mine):
            if side is not None:
                self.outgoing.tell_everyone(self.outgoing.seal(to_message(side)))

    def ordered(self, sealed: Sealed[Order]) -> None:
        """The operator's order came; anyone may pass it on."""
        setting = self.setting
        right = order_right(sealed, setting.run, setting.genesis.operator, verifier=setting.endpoint.verifier)
        if self.state is None or right is None or right.expired(setting.wall()):
            return
        if sealed.message.number > self.state.value.order_number:
            self.post(OrderCame(sealed))

    def accused(self, proof: Proof) -> None:
        """Verified evidence against a member came."""
        self.post(EvidenceCame(proof))

    def concerns(self, peer: str) -> bool:
        """Whether a peer has or may get a place in the run."""
        state = self.state
        known = (
            set() if state is None else {e.peer for e in state.value.electorate} | set(state.value.members)
        )
        return peer in known or peer in set(self.setting.peers())

    def keep(self, proof: Proof, by: PeerId) -> None:
        """Evidence is new here: it outlives this process, and what this member has found out is told to all."""
        try:
            self.ledger.keep_evidence(proof.evidence)
        except NodeError as error:
            self.setting.emit("evidence.lost", code=str(error.code), reason=error.sentence)
        if by == self.setting.me and self.state is not None:
            self.outgoing.tell_everyone(self.outgoing.seal(proof.evidence))

    def _recall_evidence(self) -> None:
        """What was found out before this process began still costs the seat."""
        for raw in self.ledger.evidence():
            try:
                proof = self.setting.rules.check_evidence(raw)
            except NodeError as error:
                self.setting.emit("evidence.lost", code=str(error.code), reason=error.sentence)
                continue
            self._news.remember(proof)
            self.accused(proof)

    @property
    def evidence(self) -> tuple[Proof, ...]:
        """Verified evidence against members."""
        return tuple(self._news.evidence.values())

    @property
    def found_out(self) -> tuple[str, ...]:
        """What members signed and no honest one can have signed, a sentence each."""
        return (*(proof.sentence for proof in self.evidence), *self._auditing.sentences.values())

    def give_order(self, sealed: Sealed[Order]) -> None:
        """Take an order and give it to the voters; by gossip all members hear of it."""
        self.ordered(sealed)
        for peer in self.outgoing.voters():
            self.outgoing.tell(peer, sealed)
        self._news.tell_ordered(sealed)

    def standing(self) -> tuple[Certified, bytes]:
        """The value after which a new epoch would begin, and the state digest after it.

        Raises:
            NodeError: ``RND_CHAIN`` when this member's own state is not there yet.
        """
        state = self.state
        if state is None or state.base is None:
            raise NodeError(
                Code.RND_CHAIN, "This node has no state from which a new epoch could begin.",
                fix="Wait until `intellect-node status` says that it trains or waits.",
            )  # fmt: skip
        return self._chain.standing(state.tip, state.base)

    def _event_of(self, certified: Certified) -> Event:
        if certified.start:
            return ResetCame(certified, root=self._chain.signed_by_root(certified))
        return Decision(certified)

    def give_reset(self, raw: bytes) -> None:
        """Take a reset and give it to all members.

        Raises:
            NodeError: It does not follow this member's chain.
        """
        assert self.state is not None
        certified = self._chain.read_reset(self.state.tip, raw)
        self.post(self._event_of(certified))
        self.outgoing.tell_everyone(self.outgoing.seal(to_message(certified)))

    def _renew(self, before: Certified, certified: Certified) -> None:
        value = certified.value
        self.outgoing.settle()
        self._promising.forget()
        self.setting.emit(
            "reset", epoch=value.epoch, round=value.round, value=certified.digest.hex(),
            electorate=[e.peer for e in value.electorate],
        )  # fmt: skip
        self._outer.renew(certified)
        self._spread(before, certified)

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

    def _attempt_of_others(self) -> int:
        beats = self.presence.heard.values()
        return max((beat.attempt for beat in beats if (beat.epoch, beat.round) == self.place), default=0)

    def circle(self) -> Collection[PeerId]:
        """To whom this member gives signs of life unasked."""
        return self.outgoing.circle()

    def expects(self, peer: PeerId) -> bool:
        """Whether a peer that is silent ought to give signs of life."""
        return self.outgoing.expects(peer)

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
        assert self.state is not None
        before = self.state.tip
        try:
            self.state, effects = advance(self.state, event, self.setting.clock())
        except (
            Exception
        ) as error:  # a mistake in the machine is not for others to use: the state is as it was
            if not isinstance(event, Arrived) or event.sealed.sender == self.setting.me:
                raise
            self._failed(f"statement of {event.sealed.sender}", error)
            return
        for effect in effects:
            try:
                self._carry_out(effect, before)
            except NodeError as error:
                self._abstain(error)
        self._outer.work()

    def _carry_out(self, effect: Effect, before: Certified) -> None:
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
                before = certified
            case Renew(certified):
                self._renew(before, certified)
            case Answer(peer, epoch, round_number):
                self.outgoing.answer(PeerId(peer), epoch, round_number)
            case CatchUp(peer):
                self.catch_up(PeerId(peer))
            case Resync(base):
                self._tasks.spawn(self._outer.resync(base), "resync")
            case Halt(reason, rival):
                self._halt(reason, rival)
            case Stop():
                self.setting.emit("clone", code=str(Code.ID_CLONED))
                self.superseded.set()
            case Accuse(proof):
                self._news.accuse(proof, self.setting.me)
            case Note(kind, fields):
                self.setting.emit(kind, **dict(fields))

    def _abstain(self, error: NodeError) -> None:
        self.setting.emit("abstain", code=str(error.code), reason=error.sentence)

    def _now(self) -> State:
        assert self.state is not None
        return self.state

    def _say(self, body: Any) -> None:
        sealed = self.outgoing.seal(body)
        if isinstance(body, Ready):
            if body.commitment:
                self._holding.frozen_for = (body.epoch, body.round)
            self.setting.emit("ready.sent", round=body.round, attempt=body.attempt)
        elif isinstance(body, Vote):
            self.setting.emit("vote", round=body.round, attempt=body.attempt, value=body.value.hex())
        self.post(Arrived(sealed))
        self.outgoing.say(sealed)

    def _commit(self, before: Certified, certified: Certified, spent: bool) -> None:
        value = certified.value
        self.outgoing.settle()
        self._promising.forget()
        assert self.state is not None
        if self.state.contribution is None:
            self._holding.frozen = None
        self.setting.emit(
            "commit", epoch=value.epoch, round=value.round, attempt=certified.attempt, value=certified.digest.hex(),
            roster=[entry.peer for entry in value.roster], tokens=value.tokens, partial_tokens=value.partial_tokens,
            electorate=[e.peer for e in value.electorate], spent=spent,
        )  # fmt: skip
        self._auditing.decided(value, self._holding.signatures(value))
        self._outer.decide(certified)
        self._spread(before, certified)
        if self.setting.me in value.banned:
            self.setting.emit("banned", code=str(Code.RND_BANNED), round=value.round)
            self.banned.set()

    def _spread(self, before: Certified, certified: Certified) -> None:
        """Pass a decided value on, unless most others are further already."""
        here = (certified.value.epoch, certified.value.round + 1)
        ahead = [(beat.epoch, beat.round) > here for beat in self.presence.heard.values()]
        if 2 * sum(ahead) <= len(ahead):
            self._news.tell_decided(certified, self.outgoing.decided(before, certified))

    def catch_up(self, peer: PeerId) -> None:
        """Ask a peer that is ahead for the certificates since; few at a time, so that a silent one holds up nobody."""
        if len(self._asking) < _MOST_ASKED and peer not in self._asking and self.state is not None:
            self._asking.add(peer)
            self._tasks.spawn(self._ask_for_more(peer), "catching up")

    async def _ask_for_more(self, peer: PeerId) -> None:
        try:
            assert self.state is not None
            for certified in await self._chain.ask(peer, self.state.tip):
                self.post(self._event_of(certified))
        except NodeError as error:
            self.setting.emit("chain.refused", peer=peer, code=str(error.code), reason=error.sentence)
            await self._look_for_fork(peer)
        finally:
            await asyncio.sleep(0.2)
            self._asking.discard(peer)

    # ---- clock and reports

    async def _tick(self) -> None:
        while True:
            self.post(Tick())
            self._promising.retry()
            state = self.state
            assert state is not None
            self._telling.phase(self.waiting(), state.round, state.attempt)
            for peer, beat in self.presence.heard.items():
                ahead = beat.epoch > state.epoch or (
                    not state.halted and (beat.epoch, beat.round) > (state.epoch, state.round)
                )
                if ahead and peer not in self.presence.dead:
                    self.catch_up(peer)
            await asyncio.sleep(TICK.total_seconds())

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(REPEAT.total_seconds())
            self.outgoing.repeat()

    def waiting(self) -> Waiting:
        """What this member does or waits for now."""
        if self.state is None:
            return Waiting("joining", "start", "Finding the run's chain and state.")
        if self.state.leaving and not belongs(self.state):
            return Waiting("draining", "acknowledgements", "Waiting for the others to have the last round.")
        return waiting(self.state, self.setting.clock())

    def heartbeat(self) -> Heartbeat | None:
        """What this member says with its signs of life."""
        if self.state is None:
            return None
        return self._telling.heartbeat(self.state, self.waiting(), self._training.share, self._outer.reached)

    def _failed(self, name: str, error: BaseException) -> None:
        self.setting.emit("task.failed", task=name, reason=f"{type(error).__name__}: {error}")
