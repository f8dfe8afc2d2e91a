"""Collecting: the chain, directory records and members' events, turned into facts. Runs in the node's own loop."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial

from diloco.genesis import Genesis
from diloco.member.admission import read_admission
from diloco.rounds.certificate import Certified
from diloco.rounds.statements import Vote
from diloco.store.ledger import Ledger
from node.coordinator.certified import decided
from node.coordinator.database import StoreError
from node.coordinator.facts import Gone, Measured, Opened, Policy, Record, Reported
from node.coordinator.service import Service
from node.coordinator.told import told
from node.network import Network
from node.reporting import KINDS, MOST, AskEvents, Events, Reporting
from protocol.directory import PeerRecord
from protocol.envelope import unseal
from protocol.errors import NodeError
from protocol.keeping import keep_running
from protocol.units import PeerId
from shardcast.messages import AskList

_LOOK = 0.25  # seconds between looks at the chain
_RECORDS = 1.0  # seconds between looks at directory records
_ASK = timedelta(seconds=5)
_AGAIN = 2.0  # seconds until a member that did not answer is asked again
_MEASURE = 30.0  # seconds between measurements of the way to a member, and between looks at its checkpoints
_MEMBERS = 1024  # peers that are asked at most


class Collecting:
    """Learns what there is to know of a run.

    Args:
        genesis: The run.
        network: The node's network.
        ledger: The chain; None before there is one.
        reporting: The node's own events.
        service: Takes what is learned.
        failed: Told of a loop that failed and goes on.
    """

    def __init__(
        self,
        genesis: Genesis,
        network: Network,
        ledger: Callable[[], Ledger | None],
        reporting: Reporting,
        service: Service,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._genesis, self._network, self._ledger = genesis, network, ledger
        self._reporting, self._service, self._failed = reporting, service, failed
        tip = service.view.tip
        self._place = (tip.epoch, tip.round)
        self._known: dict[PeerId, Record] = {}
        self._asking: dict[PeerId, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Collect until cancelled."""
        self._open()
        loops = (self.chain, self.records)
        try:
            await asyncio.gather(*(keep_running(loop, self._failed) for loop in loops))
        finally:
            for task in self._asking.values():
                task.cancel()

    def _open(self) -> None:
        sections, run = self._genesis.sections, self._service.view.run
        opened = Opened(
            seen_at=self._service.clock(), run=self._genesis.run_id, name=sections.run.name, rounds=sections.run.rounds,
            policy=sections.admission.policy, operator=self._genesis.operator,
            start_members=sections.round.start_members, changeable=tuple(sections.round.changeable),
        )  # fmt: skip
        if run.id != opened.run:
            self._service.take(opened)

    # ---- the chain

    async def chain(self) -> None:
        """Learn what is decided, in the chain's order."""
        while True:
            ledger = self._ledger()
            if ledger is not None and not self._service.recorder.full:
                self.look_at(ledger)
            await asyncio.sleep(_LOOK)

    def look_at(self, ledger: Ledger) -> None:
        """Learn what a ledger holds beyond what is known."""
        for certified in ledger.after(*self._place, limit=200):
            value = certified.value
            self._service.take(decided(certified, self._service.clock(), self._signers(certified)))
            self._place = (value.epoch, value.round)

    def _signers(self, certified: Certified) -> tuple[str, ...]:
        found = []
        for raw in certified.votes:
            with suppress(NodeError):
                found.append(unseal(raw, run=self._genesis.run_id, expect=Vote).sender)
        return tuple(found)

    # ---- records

    async def records(self) -> None:
        """Learn who is there; ask each of them for its events."""
        while True:
            self._look_at_records()
            self._ask_everybody()
            await asyncio.sleep(_RECORDS)

    def _look_at_records(self) -> None:
        now, network = self._service.clock(), self._network
        here = {peer: self._fact(record, now) for peer, record in network.members.items()}
        newcomers = {
            peer: self._fact(record, now, newcomer=True)
            for peer, record in network.newcomers.items()
            if peer not in here
        }
        for peer, fact in (here | newcomers).items():
            held = self._known.get(peer)
            if held is None or _still(held) != _still(fact):
                self._known[peer] = fact
                self._service.take(fact)
        for peer in [peer for peer in self._known if peer not in here and peer not in newcomers]:
            del self._known[peer]
            self._service.take(
                Gone(
                    seen_at=now,
                    source=network.me,
                    trust="witnessed",
                    peer=peer,
                    why="Its directory record ended.",
                )
            )

    def _fact(self, record: PeerRecord, now: float, newcomer: bool = False) -> Record:
        seat = False
        if not newcomer:
            with suppress(NodeError):
                run, operator = self._genesis.run_id, self._genesis.operator
                seat = read_admission(record.admission, run, operator, record.peer).message.seat
        return Record(
            seen_at=now, source=record.peer, trust="self-reported", peer=record.peer, version=record.software,
            protocol=record.protocol, reach=record.reach or "direct", seen=record.seen, roles=tuple(record.roles),
            addresses=tuple(record.multiaddrs), seat=seat, newcomer=newcomer, started=record.started,
        )  # fmt: skip

    # ---- events

    def _ask_everybody(self) -> None:
        wanted = {peer for peer, record in self._known.items() if not record.newcomer}
        wanted = set(sorted(wanted)[:_MEMBERS]) | {self._network.me}
        for peer in [peer for peer in self._asking if peer not in wanted or self._asking[peer].done()]:
            self._asking.pop(peer).cancel()
        for peer in wanted - self._asking.keys():
            following = keep_running(partial(self._follow, peer), self._failed)
            self._asking[peer] = asyncio.ensure_future(following)

    async def _follow(self, peer: PeerId) -> None:
        """One member's events, for as long as it is asked."""
        loop = asyncio.get_running_loop()
        boot, after = await self._heard(peer)
        measured = 0.0
        while True:
            if self._service.recorder.full:
                await asyncio.sleep(_AGAIN)
                continue
            began = loop.time()
            measure = peer != self._network.me and began - measured > _MEASURE
            question = AskEvents(
                boot=bytes.fromhex(boot), after=after, limit=0 if measure else MOST, wait=not measure
            )
            try:
                answer = await self._ask(peer, question)
            except NodeError:
                await asyncio.sleep(_AGAIN)
                continue
            if measure:
                measured = began
                self._measured(peer, loop.time() - began)
                await self._checkpoints(peer)
                continue
            if answer.boot.hex() != boot:
                boot, after = answer.boot.hex(), 0
            for event in answer.events:
                if event.sequence > after and event.kind in KINDS:
                    after = event.sequence
                    self._learn(peer, boot, event.sequence, event.t, event.kind, event.fields)

    async def _heard(self, peer: PeerId) -> tuple[str, int]:
        with suppress(StoreError):
            return await asyncio.to_thread(self._service.store.heard, peer)
        return "", 0

    async def _ask(self, peer: PeerId, question: AskEvents) -> Events:
        if peer == self._network.me:
            return await self._reporting.ask(question)
        answer: Events = await self._network.endpoint.request(peer, question, timeout=_ASK)
        return answer

    def _learn(self, peer: PeerId, boot: str, sequence: int, t: float, kind: str, data: bytes) -> None:
        try:
            fields = json.loads(data or b"{}")
        except (ValueError, RecursionError):
            return
        if not isinstance(fields, dict):
            return
        now = self._service.clock()
        self._service.take(
            Reported(
                seen_at=now, source=peer, trust="self-reported", peer=peer, sequence=sequence, t=t, kind=kind,
                fields=fields, boot=boot,
            )
        )  # fmt: skip
        for fact in told(peer, kind, fields, now, own=peer == self._network.me, trains=self._trains(peer)):
            self._service.take(fact)

    def _trains(self, peer: PeerId) -> bool:
        record = self._known.get(peer)
        return peer in self._service.view.tip.taking_part or (
            record is not None and "trainer" in record.roles
        )

    def _measured(self, peer: PeerId, seconds: float) -> None:
        now, path = self._service.clock(), self._network.ways.to(peer)
        self._service.take(
            Measured(
                seen_at=now, source=self._network.me, trust="witnessed", peer=peer, rtt=seconds, path=path
            )
        )

    async def _checkpoints(self, peer: PeerId) -> None:
        """Which checkpoint a member offers."""
        with suppress(NodeError):
            listing = await self._network.endpoint.request(peer, AskList(prefix="checkpoint/"), timeout=_ASK)
            names = [each for each in listing.objects if each.name.removeprefix("checkpoint/").isdecimal()]
            for each in names[-1:]:
                self._service.take(
                    Policy(
                        seen_at=self._service.clock(), source=peer, trust="self-reported", holder=peer,
                        version=int(each.name.removeprefix("checkpoint/")), size=each.size,
                        digest=each.digest.hex(),
                    )
                )  # fmt: skip


def _still(record: Record) -> tuple[object, ...]:
    """What of a record is news when it changes."""
    return (
        record.version, record.protocol, record.reach, record.seen, record.roles, record.seat, record.newcomer,
        record.started, record.addresses,
    )  # fmt: skip
