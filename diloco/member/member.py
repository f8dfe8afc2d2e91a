"""One member of a run: feeds the round machine with what happens, and carries out what it asks for."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from diloco.member.applying import Applied, Applying
from diloco.member.chain import Chain
from diloco.member.holding import Holding
from diloco.member.mail import Mail
from diloco.member.messages import Goodbye, Heartbeat
from diloco.member.news import News
from diloco.member.presence import Presence
from diloco.member.reception import Reception
from diloco.member.restoring import Restoring
from diloco.member.setting import REPEAT, TICK, Setting, Tasks, Trainer
from diloco.member.streams import LivingStreams
from diloco.member.training import Training
from diloco.outer_state import OuterState
from diloco.reduce.contribution import Frozen
from diloco.reduce.gathering import Attempt
from diloco.reduce.gathering import Setting as ReduceSetting
from diloco.reduce.messages import Header
from diloco.reduce.reduction import Reduction
from diloco.rounds import planning
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
    Held,
    Leave,
    Note,
    OrderCame,
    Persist,
    Reduce,
    Reduced,
    Renew,
    ResetCame,
    Resync,
    Say,
    Seen,
    StateReady,
    Tick,
    Trained,
    Unheld,
)
from diloco.rounds.machine import advance
from diloco.rounds.state import Ballot, State
from diloco.rounds.statements import Lease, Order, Ready, Reassign
from diloco.rounds.waiting import Waiting, waiting
from diloco.store.checkpoints import Checkpoints
from diloco.store.ledger import Ledger, to_message
from diloco.store.reduced import ReducedStore
from protocol.envelope import Sealed, seal, unseal
from protocol.errors import Code, NodeError
from protocol.units import PeerId
from shardcast.service import Service, attach
from shardcast.shelf import Shelf


class Member:
    """A member of a run. Make it before the endpoint starts, then ``run`` it once, in the endpoint's event loop.

    Args:
        setting: The run and the outside world.
        state: The outer state, holding the state of round 0 or any other of the run.
        trainer: The workers.
    """

    def __init__(self, setting: Setting, state: OuterState, trainer: Trainer) -> None:
        self.setting, self._trainer = setting, trainer
        sizes = [setting.codec.nbytes(n) for n in setting.rules.chunk_sizes]
        self.ledger = Ledger(setting.folder / "ledger.sqlite")
        checkpoints = Checkpoints(setting.folder / "checkpoints", setting.run, setting.grid)
        reduced = ReducedStore(setting.folder / "reduced", sizes)
        shelf = Shelf(setting.folder / "shelf")
        self._tasks = Tasks(self._failed)
        self._mail = Mail(setting, self._tasks)
        self._chain = Chain(setting, self.ledger)
        self._holding = Holding(setting, reduced, self.ledger)
        self._applying = Applying(setting, state, checkpoints)
        self._restoring = Restoring(setting, state, self._applying, self.ledger, checkpoints, reduced, shelf)
        self._training = Training(setting, trainer, state, self._trained)
        deadline = setting.genesis.sections.deadline
        self.presence = Presence(
            setting, interval=deadline.heartbeat, silence=deadline.silence, describe=self._heartbeat,
            seen=self._seen, gone=self._gone,
        )  # fmt: skip
        self.service: Service = attach(setting.endpoint, shelf)
        Reception(setting.endpoint, self._holding, self._chain, self.presence, self)
        self._news = News(setting, self._tasks, self)
        self._reducing = ReduceSetting(
            me=setting.me,
            grid=setting.grid,
            codec=setting.codec,
            streams=LivingStreams(setting.endpoint, self.presence),
            seal=self._seal,
            unseal=lambda raw: unseal(
                raw, run=setting.run, expect=Header, verifier=setting.endpoint.verifier
            ),
            progress=deadline.progress,
            gone=lambda peer: peer in self.presence.dead,
            note=setting.emit,
        )
        self.state: State | None = None
        self.started = asyncio.Event()
        self.finished = asyncio.Event()
        self.left = asyncio.Event()
        self.banned = asyncio.Event()
        self._boot = setting.endpoint.boot
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._decided: asyncio.Queue[Certified] = asyncio.Queue()
        self._workers = asyncio.Lock()
        self._applied: Applied | None = None
        self._reached = -1
        self._evaluating = False
        self._phase: tuple[object, ...] = ()
        self._answered: dict[str, float] = {}
        self._catching_up = False
        self._evaluated = -1

    # ---- life

    async def run(self) -> None:
        """Find the chain, restore the state, take part until cancelled or left."""
        try:
            tip = await self._find_chain()
            await self._begin(tip)
            self._tasks.spawn(self.presence.run(), "presence")
            self._tasks.spawn(self._apply_decided(), "applying")
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

    async def _find_chain(self) -> Certified:
        while (tip := self.ledger.tip()) is None:
            await self._chain.extend(self.setting.peers())
            if self.ledger.tip() is None:
                sentence = (
                    "Waiting for the start record: the first node writes it when enough members are there."
                )
                self._say_phase(Waiting("joining", "start", sentence), -1, 0)
                await asyncio.sleep(0.5)
        await self._chain.extend(self.setting.peers())
        return self.ledger.tip() or tip

    async def _begin(self, tip: Certified) -> None:
        self._say_phase(Waiting("joining", "state", "Restoring the outer state."), tip.value.round + 1, 0)
        fresh = self.ledger.promise() is None
        while True:
            try:
                self._applied = await self._restoring.restore(tip.value, list(self.setting.peers()))
                break
            except NodeError as error:
                self.setting.emit("restore.waits", code=str(error.code), reason=error.sentence)
                if not error.retriable and error.code != Code.STO_CORRUPT:
                    raise
                await asyncio.sleep(1.0)
                await self._chain.extend(self.setting.peers())
                tip = self.ledger.tip() or tip
        now = self.setting.clock()
        me = self.setting.me
        voter = any(e.peer == me for e in tip.value.electorate)
        state = State(
            me=me,
            rules=self.setting.rules,
            timing=self.setting.timing,
            boot=self._boot,
            tip=tip,
            admission=self.setting.admission,
            abstains=voter and fresh and tip.value.round >= 0,
            began=now,
            attempt_began=now,
        )
        promise = self.ledger.promise()
        if promise is not None and (promise.epoch, promise.round) == (state.epoch, state.round):
            ballot = None
            if promise.voted_attempt:
                ballot = Ballot(promise.voted_attempt - 1, promise.voted_value, promise.voted_close)
            state = replace(state, promised=promise.promised, recovered=promise.promised, ballot=ballot)
        self.state = state
        if tip.value.round >= 0:
            await asyncio.to_thread(self._restoring.offer, tip.value)
        self.setting.emit("member.joined", round=state.round)
        self._report(self._applied, 0.0)
        self.post(StateReady(self._applied.round, self._applied.digest))

    async def drain(self) -> None:
        """Leave in good order: finish or cut short the lease, be named as leaving, say goodbye (rule 14)."""
        self.setting.emit("drain.begin", round=self.state.round if self.state else -1)
        bound = self.setting.genesis.sections.deadline.drain.total_seconds()
        try:
            async with asyncio.timeout(bound):
                await self._drain()
        except TimeoutError:
            self.setting.emit("drain.cut", reason=f"The last round was not decided within {bound:.0f} s.")
        for peer in self.setting.peers():
            try:
                goodbye = Goodbye(reason="stopped by its operator")
                await self.setting.endpoint.send(peer, goodbye, timeout=timedelta(seconds=2))
            except NodeError:
                continue  # who cannot be told will find out
        self.setting.emit("goodbye")
        self.left.set()
        self.post(Tick())

    async def _drain(self) -> None:
        if self.state is None or self.state.finished:
            return
        self.post(Leave())
        self._training.cut_short()
        await asyncio.sleep(0)
        while self._belongs() and not self.state.finished:
            self._maybe_train()
            await asyncio.sleep(0.1)
        wanted = self.state.round
        while not self._acknowledged(wanted):
            await asyncio.sleep(0.1)

    def _belongs(self) -> bool:
        assert self.state is not None
        value = self.state.value
        me = self.setting.me
        if me in value.left:
            return False
        return any(e.peer == me for e in value.electorate) or me in value.members

    def _acknowledged(self, round_number: int) -> bool:
        """Whether a quorum of the electorate has the certificate and bytes of every round before ``round_number``."""
        assert self.state is not None
        if self.state.value.stopped or self.state.finished:
            return True
        have = {peer for peer, beat in self.presence.heard.items() if beat.round >= round_number}
        return self.state.is_quorum(have | {self.setting.me})

    # ---- events in

    def post(self, event: Event) -> None:
        """Queue an event for the round machine."""
        self._events.put_nowait(event)

    def arrived(self, sealed: Sealed[Any]) -> None:
        """A verified statement about a round came."""
        self._news.watch(sealed)
        if self.state is not None:
            self.post(Arrived(sealed))

    def reassigned(self, sealed: Sealed[Reassign]) -> None:
        """A leader moved chunks."""
        reduction, order = self._holding.reduction, sealed.message
        if reduction is None or sealed.sender != reduction.attempt.leader:
            return
        if (order.epoch, order.round) == (reduction.attempt.epoch, reduction.attempt.round):
            reduction.reassign(order)

    @property
    def place(self) -> tuple[int, int] | None:
        """The epoch and round this member is in, None before it has begun."""
        return None if self.state is None else (self.state.epoch, self.state.round)

    def decided(self, message: Any) -> None:
        """Someone showed a decided value."""
        if self.state is None:
            if self.ledger.tip() is None and message.start:
                self.ledger.append(self._chain.read_start(message.start))
            return
        try:
            certified = self._chain.read(self.state.tip, message)
            self.post(ResetCame(certified) if certified.start else Decision(certified))
        except NodeError as error:
            if error.code != Code.RND_CHAIN:  # one that is older or newer than the tip is no news
                self.setting.emit("decided.refused", code=str(error.code), reason=error.sentence)

    def ordered(self, sealed: Sealed[Order]) -> None:
        """The operator's order came; anyone may pass it on."""
        if self.state is None or sealed.sender != self.setting.genesis.operator:
            return
        if sealed.message.number > self.state.value.order_number:
            self.post(OrderCame(sealed))

    def give_order(self, sealed: Sealed[Order]) -> None:
        """Take an order and give it to all members."""
        self.ordered(sealed)
        self._news.tell_ordered(sealed)
        for peer in self._audience():
            self._mail.tell(peer, sealed)

    def give_reset(self, raw: bytes) -> None:
        """Take a reset and give it to all members.

        Raises:
            NodeError: It does not follow this member's chain.
        """
        assert self.state is not None
        certified = self._chain.read_reset(self.state.tip, raw)
        self.post(ResetCame(certified))
        for peer in self._audience():
            self._mail.tell(peer, self._seal(to_message(certified)))

    def _renew(self, certified: Certified) -> None:
        value = certified.value
        self.ledger.append(certified)
        self._mail.settle()
        self.setting.emit(
            "reset", epoch=value.epoch, round=value.round, value=certified.digest.hex(),
            electorate=[e.peer for e in value.electorate],
        )  # fmt: skip
        self._news.tell_decided(certified)
        self._tasks.spawn(self._restate(certified), "new epoch")

    async def _restate(self, certified: Certified) -> None:
        """Report the state that a new epoch begins from; restore it where this member was ahead or beside."""
        await self._training.interrupt()
        async with self._workers:
            there = self._applied is not None and self._applied.round == certified.value.round + 1
            if not there or self._applied is None or self._applied.digest != certified.value.base:
                self._applied = await self._restoring.restore(certified.value, self._holders(certified.value.round))
        self.post(StateReady(self._applied.round, self._applied.digest))

    def _seen(self, peer: PeerId) -> None:
        self.setting.emit("peer.seen", peer=peer)
        self.post(Seen(peer))

    def _gone(self, peer: PeerId, why: str) -> None:
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
        self.state, effects = advance(self.state, event, self.setting.clock())
        for effect in effects:
            try:
                self._carry_out(effect)
            except NodeError as error:  # what cannot be written is not said: the node abstains
                self.setting.emit("abstain", code=str(error.code), reason=error.sentence)
                break
        self._maybe_train()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Persist():
                self.ledger.save_promise(effect)
            case Say(body):
                self._say(body)
            case Reduce(attempt, leader, plan):
                self._tasks.spawn(self._reduce(attempt, leader, plan), f"reduce {attempt}")
            case Abandon():
                self._tasks.spawn(self._holding.abandon(), "abandon")
            case Fetch(value, plan):
                self._tasks.spawn(self._fetch(value, plan), "fetch")
            case Commit(certified, spent):
                self._commit(certified, spent)
            case Renew(certified):
                self._renew(certified)
            case Answer(peer, round_number):
                self._answer(PeerId(peer), round_number)
            case CatchUp(peer):
                self.catch_up(PeerId(peer))
            case Resync(base):
                self._tasks.spawn(self._resync(base), "resync")
            case Note(kind, fields):
                self.setting.emit(kind, **dict(fields))

    def _seal(self, body: Any) -> Sealed[Any]:
        return seal(self.setting.endpoint.identity, self.setting.run, body)

    def _say(self, body: Any) -> None:
        sealed = self._seal(body)
        if isinstance(body, Ready):
            if body.commitment:
                self._holding.frozen_for = (body.epoch, body.round)
            self.setting.emit("ready.sent", round=body.round, attempt=body.attempt)
        elif type(body).__name__ == "Vote":
            self.setting.emit("vote", round=body.round, attempt=body.attempt, value=body.value.hex())
        self.post(Arrived(sealed))
        self._mail.say(sealed, self._audience())

    def _audience(self) -> Iterable[PeerId]:
        """Everyone who is to hear of the round: voters, members, and admitted peers that may want to enter."""
        assert self.state is not None
        value = self.state.value
        named = {PeerId(e.peer) for e in value.electorate} | {PeerId(peer) for peer in value.members}
        return (named | set(self.setting.peers())) - {self.setting.me}

    async def _reduce(self, attempt: int, leader: str, plan: planning.Plan) -> None:
        assert self.state is not None
        emit, clock = self.setting.emit, self.setting.clock
        which = Attempt(self.state.epoch, self.state.round, attempt, leader, plan)
        mine = any(entry.peer == self.setting.me for entry in plan.roster)
        reduction = Reduction(self._reducing, which, self._holding.frozen if mine else None, self._move)
        emit(
            "reduce.begin", round=which.round, attempt=attempt, leader=leader,
            roster=[entry.peer for entry in plan.roster], chunks=len(plan.owners),
        )  # fmt: skip
        began = clock()
        await self._holding.begin(reduction)
        await reduction.ended.wait()
        if not reduction.complete:
            return
        emit("reduce.end", round=which.round, attempt=attempt, seconds=clock() - began)
        if leader != self.setting.me:
            return
        data = [reduction.frames[chunk].data for chunk in range(len(plan.owners))]
        entries = reduction.entries
        if entries:
            await asyncio.to_thread(self._holding.store.write, which.epoch, which.round, entries, data)
        self.post(Reduced(attempt, entries))

    def _move(self, order: Reassign) -> None:
        sealed = self._seal(order)
        for peer in self._audience():
            self._mail.tell(peer, sealed)
        self.reassigned(sealed)

    async def _fetch(self, data: bytes, plan: planning.Plan | None) -> None:
        value = planning.parse_value(data)
        try:
            await self._holding.gather(value, plan, self._holders(value.round))
        except NodeError as error:
            self.post(Unheld(data, error.sentence))
        else:
            self.post(Held(data))

    def _holders(self, round_number: int) -> list[PeerId]:
        """Who may hold a round's bytes: its leader first, then everyone alive."""
        assert self.state is not None
        alive = [peer for peer in self._audience() if peer not in self.presence.dead]
        if self.state.round == round_number:
            leader = self.state.leader(self.state.attempt)
            alive.sort(key=lambda peer: peer != leader)
        return alive

    def _commit(self, certified: Certified, spent: bool) -> None:
        value = certified.value
        self.ledger.append(certified)
        self._mail.settle()
        assert self.state is not None
        if self.state.contribution is None:
            self._holding.frozen = None
        self.setting.emit(
            "commit", epoch=value.epoch, round=value.round, attempt=certified.attempt, value=certified.digest.hex(),
            roster=[entry.peer for entry in value.roster], tokens=value.tokens, partial_tokens=value.partial_tokens,
            electorate=[e.peer for e in value.electorate], spent=spent,
        )  # fmt: skip
        for peer in self._audience():
            self._mail.tell(peer, self._seal(to_message(certified)))
        self._news.tell_decided(certified)
        self._decided.put_nowait(certified)
        if self.setting.me in value.banned:
            self.setting.emit("banned", code=str(Code.RND_BANNED), round=value.round)
            self.banned.set()

    def _answer(self, peer: PeerId, round_number: int) -> None:
        """Send a peer that is behind the certificates since, at most once a second."""
        now = self.setting.clock()
        if now - self._answered.get(peer, -1.0) < 1.0:
            return
        self._answered[peer] = now
        for certified in self.ledger.after(0, round_number - 1, 8):
            self._mail.tell(peer, self._seal(to_message(certified)))

    def catch_up(self, peer: PeerId) -> None:
        """Ask a peer that is ahead for the certificates since; one question at a time."""
        if not self._catching_up and self.state is not None:
            self._catching_up = True
            self._tasks.spawn(self._ask_for_more(peer), "catching up")

    async def _ask_for_more(self, peer: PeerId) -> None:
        try:
            assert self.state is not None
            for certified in await self._chain.ask(peer, self.state.tip):
                self.post(ResetCame(certified) if certified.start else Decision(certified))
        except NodeError as error:
            self.setting.emit("chain.refused", peer=peer, code=str(error.code), reason=error.sentence)
        finally:
            await asyncio.sleep(0.2)
            self._catching_up = False

    async def _resync(self, base: bytes) -> None:
        """This member's state differs from the quorum's: restore it anew."""
        assert self.state is not None
        self.setting.emit("diverged", code=str(Code.RND_DIVERGED), round=self.state.round, base=base.hex())
        async with self._workers:
            await self._training.interrupt()
            await self._restore(base)
            assert self._applied is not None
        self.post(StateReady(self._applied.round, self._applied.digest))

    async def _restore(self, base: bytes | None = None) -> None:
        """Restore the state after the tip, however long it takes; with the workers held."""
        while True:
            self._applied = None  # what is in memory may be older from here on
            assert self.state is not None
            tip = self.state.value
            try:
                self._applied = await self._restoring.restore(tip, self._holders(tip.round), base)
                return
            except NodeError as error:
                self.setting.emit(
                    "restore.waits", code=str(error.code), round=tip.round + 1, reason=error.sentence
                )
                await asyncio.sleep(0.5)
                if self.state.value is not tip:
                    base = None  # the quorum has gone on meanwhile

    # ---- applying

    async def _apply_decided(self) -> None:
        while True:
            certified = await self._decided.get()
            async with self._workers:
                await self._training.interrupt()
                await self._apply(certified)
            if self._decided.empty():
                assert self._applied is not None
                self.post(StateReady(self._applied.round, self._applied.digest))

    async def _apply(self, certified: Certified) -> None:
        value, clock = certified.value, self.setting.clock
        began = clock()
        while self._applied is None or self._applied.round <= value.round:
            try:
                chunks = await self._holding.gather(value, None, self._holders(value.round))
                self._applied = await asyncio.to_thread(self._applying.apply, value.round, chunks)
            except NodeError as error:
                self.setting.emit(
                    "apply.waits", code=str(error.code), round=value.round, reason=error.sentence
                )
                await self._restore()
        await self._holding.settle(value.round)
        await asyncio.to_thread(self._restoring.offer, value)
        self._report(self._applied, clock() - began)

    def _report(self, applied: Applied, seconds: float) -> None:
        self._reached = applied.round
        self.setting.emit(
            "apply", round=applied.round, digest=applied.digest.hex(), parameters=applied.parameters.hex(),
            momentum=applied.momentum.hex(), seconds=seconds,
        )  # fmt: skip
        rounds, state = self.setting.bytes_sent()
        self.setting.emit("bytes", round=applied.round, rounds=rounds, state=state, total=rounds + state)

    # ---- training

    def _maybe_train(self) -> None:
        state = self.state
        if state is None or state.base is None or self._training.running:
            return
        if self._workers.locked() or self._evaluating:
            return
        if state.finished:
            if not self.finished.is_set():
                self.finished.set()
                self._tasks.spawn(self._finish(), "finishing")
            return
        lease = state.lease
        if lease is None or state.contribution is not None:
            return
        share = self._training.share
        if state.leaving:
            if share is not None and share.lease == lease and share.samples > 0:
                self._training.conclude(state.round)
            else:
                self.post(Trained(lease.start, Contribution()))
            return
        if self._evaluated < state.round and self._evaluates(state):
            self._evaluated, self._evaluating = state.round, True
            self._tasks.spawn(self._evaluate(state.round), "evaluation")
            return
        self._training.begin(lease, state.round)

    def _evaluates(self, state: State) -> bool:
        """One voter evaluates each round, in turn."""
        voters = [e.peer for e in state.value.electorate]
        return bool(voters) and voters[state.round % len(voters)] == self.setting.me

    async def _evaluate(self, round_number: int) -> None:
        try:
            async with self._workers:
                loss = await self._trainer.evaluate()
            self.setting.emit("evaluation", round=round_number, loss=loss)
        except NodeError as error:
            self.setting.emit(
                "evaluation.failed", round=round_number, code=str(error.code), reason=error.sentence
            )
        finally:
            self._evaluating = False
        self.post(Tick())

    async def _finish(self) -> None:
        assert self.state is not None and self._applied is not None
        await self._evaluate(self.state.round)
        applied = self._applied
        self.setting.emit(
            "run.finished", round=applied.round, digest=applied.digest.hex(), parameters=applied.parameters.hex(),
            momentum=applied.momentum.hex(),
        )  # fmt: skip

    # ---- clock and reports

    async def _tick(self) -> None:
        while True:
            self.post(Tick())
            state = self.state
            assert state is not None
            self._say_phase(self.waiting(), state.round, state.attempt)
            for peer, beat in self.presence.heard.items():
                if (beat.epoch, beat.round) > (state.epoch, state.round) and peer not in self.presence.dead:
                    self.catch_up(peer)
            await asyncio.sleep(TICK.total_seconds())

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(REPEAT.total_seconds())
            self._mail.repeat(self._audience())

    def waiting(self) -> Waiting:
        """What this member does or waits for now."""
        if self.state is None:
            return Waiting("joining", "start", "Finding the run's chain and state.")
        if self.state.leaving and not self._belongs():
            return Waiting("draining", "acknowledgements", "Waiting for the others to have the last round.")
        return waiting(self.state, self.setting.clock())

    def _say_phase(self, now: Waiting, round_number: int, attempt: int) -> None:
        phase = (now.phase, now.reason, round_number, attempt, now.missing)
        if phase != self._phase:
            self._phase = phase
            left = None if now.until is None else max(0.0, now.until - self.setting.clock())
            self.setting.emit(
                "node.phase", phase=now.phase, reason=now.reason, sentence=now.sentence, until=left,
                missing=list(now.missing), round=round_number, attempt=attempt,
            )  # fmt: skip

    def _heartbeat(self) -> Heartbeat | None:
        if self.state is None:
            return None
        share, now = self._training.share, self.waiting()
        lease = self.state.lease
        per_step = self.setting.genesis.sections.inner.samples_per_step
        return Heartbeat(
            epoch=self.state.epoch,
            round=min(self._reached, self.state.round),
            attempt=self.state.attempt,
            phase=now.phase,
            step=share.steps if share else 0,
            steps=-(-lease.count // per_step) if lease else 0,
            loss=share.loss if share else 0.0,
            sentence=now.sentence[:300],
        )

    def _failed(self, name: str, error: BaseException) -> None:
        self.setting.emit("task.failed", task=name, reason=f"{type(error).__name__}: {error}")
