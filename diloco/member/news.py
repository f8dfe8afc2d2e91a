"""What members tell everyone by gossip, beside the mail to those they know: decisions, orders, evidence.

Nothing waits for it and no round needs it. It reaches members that nobody has the address of yet, and those that were
away: they get it from whomever they meet first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from blake3 import blake3

from diloco.member.setting import Setting, Tasks
from diloco.rounds.certificate import Certified
from diloco.rounds.evidence import Proof, contradiction
from diloco.rounds.records import Order
from diloco.rounds.statements import Evidence, Vote
from diloco.rounds.values import Decided
from protocol.envelope import Sealed, unseal
from protocol.messages import decode, encode, field, topic
from protocol.rpc import Context
from protocol.units import PeerId

_WHOLE = 60 * 1024
"""A decided value with its certificate travels whole up to this size; of a larger one only its name does."""

_TURN = timedelta(milliseconds=300)
"""Members publish a decision one after the other, this far apart, until one of them is heard."""

_REMEMBERED = 1024


@topic("run.decision", version=1, max_bytes="64 KiB", rate="20/s", audience="member")
class Decision:
    """A round was decided.

    Attributes:
        epoch: Its epoch.
        round: Its round.
        digest: Digest of the value (32 bytes).
        decided: The encoded ``round.decided``, which proves it; empty where it is too large, then it is asked for.
    """

    epoch: int = field(1)
    round: int = field(2, kind="sint64")
    digest: bytes = field(3, max_bytes=32)
    decided: bytes = field(4, default=b"", max_bytes=_WHOLE)


@topic("run.operator-order", version=1, max_bytes="4 KiB", rate="20/s", audience="member")
class OperatorOrder:
    """The operator gave an order; whoever publishes it, the operator's signature is inside.

    Attributes:
        order: The operator's ``run.order`` (envelope bytes).
    """

    order: bytes = field(1, max_bytes=2048)


@topic("run.evidence", version=1, max_bytes="64 KiB", rate="2/s", audience="member")
class Accusation:
    """Statements that one honest member cannot both have signed, where they are short enough to be published.

    Attributes:
        kind: What they show.
        accused: Who signed them.
        statements: The statements (envelope bytes).
    """

    kind: str = field(1, max_bytes=32)
    accused: str = field(2, max_bytes=64)
    statements: tuple[bytes, ...] = field(3, max_items=4, max_bytes=32768)


def _place(vote: Sealed[Vote]) -> tuple[PeerId, int, int, int]:
    said = vote.message
    return vote.sender, said.epoch, said.round, said.attempt


class Listener(Protocol):
    """The member that the news are for."""

    @property
    def place(self) -> tuple[int, int] | None:
        """The epoch and round it is in, None before it has begun."""
        ...

    def decided(self, message: Decided, sender: PeerId) -> None:
        """A peer showed a decided value."""
        ...

    def ordered(self, sealed: Sealed[Order]) -> None:
        """The operator's order came."""
        ...

    def catch_up(self, peer: PeerId) -> None:
        """Ask a peer for decided values."""
        ...


class Court(Protocol):
    """Who takes evidence."""

    def concerns(self, peer: str) -> bool:
        """Whether evidence against a peer is of interest: keys of strangers cost nothing."""
        ...

    def keep(self, proof: Proof, by: PeerId) -> None:
        """Evidence is new here, shown by somebody or found out by this member itself."""
        ...

    def accused(self, proof: Proof) -> None:
        """Verified evidence came."""
        ...


class News:
    """A member's gossip. Make it before the endpoint has its gossip or after; used from one event loop.

    Args:
        setting: The member's setting.
        tasks: Where publishing runs.
        listener: The member.
        court: Takes evidence.
    """

    def __init__(self, setting: Setting, tasks: Tasks, listener: Listener, court: Court) -> None:
        self._setting, self._tasks, self._listener, self._court = setting, tasks, listener, court
        self._heard: OrderedDict[bytes, None] = OrderedDict()
        self._votes: OrderedDict[tuple[PeerId, int, int, int], Sealed[Vote]] = OrderedDict()
        self.evidence: OrderedDict[str, Proof] = OrderedDict()
        handlers: tuple[Callable[..., Any], ...] = (
            self.on_decision,
            self.on_operator_order,
            self.on_accusation,
        )
        for handler in handlers:
            setting.endpoint.handle(handler)

    # ---- telling

    def tell_decided(self, certified: Certified, decided: Decided) -> None:
        """Publish a decided value, as it travels, when it is this member's turn and nobody did before."""
        if self._setting.endpoint.gossip is not None and certified.digest not in self._heard:
            self._tasks.spawn(self._tell_decided(certified, decided), "publishing a decision")

    async def _tell_decided(self, certified: Certified, decided: Decided) -> None:
        value = certified.value
        await asyncio.sleep(self._turn(certified) * _TURN.total_seconds())
        if certified.digest in self._heard:
            return
        self._remember(certified.digest)
        whole = encode(decided)
        await self._publish(
            Decision(
                epoch=value.epoch,
                round=value.round,
                digest=certified.digest,
                decided=whole if len(whole) <= _WHOLE else b"",
            )
        )

    def _turn(self, certified: Certified) -> int:
        """This member's place in an order that is another one for each value."""
        everyone = {elector.peer for elector in certified.value.electorate} | {self._setting.me}
        order = sorted(everyone, key=lambda peer: blake3(certified.digest + peer.encode()).digest())
        return order.index(self._setting.me)

    def tell_ordered(self, sealed: Sealed[Order]) -> None:
        """Publish an operator's order."""
        self._tasks.spawn(self._publish(OperatorOrder(order=sealed.raw)), "publishing an order")

    def watch(self, sealed: Sealed[Any]) -> None:
        """Look at a verified statement; what contradicts an earlier one of its sender is shown to everyone."""
        if not isinstance(sealed.message, Vote):
            return
        first = self._votes.setdefault(_place(sealed), sealed)
        if len(self._votes) > _REMEMBERED:
            self._votes.popitem(last=False)
        proof = contradiction(first, sealed)
        if proof is not None:
            self.accuse(proof, self._setting.me)
            self._court.accused(proof)

    def accuse(self, proof: Proof, by: PeerId) -> None:
        """Write evidence down, and publish what this member itself has found out."""
        evidence = proof.evidence
        if evidence.accused in self.evidence:
            return
        self.remember(proof)
        self._court.keep(proof, by)
        self._setting.emit(
            "evidence", accused=evidence.accused, what=evidence.kind, sentence=proof.sentence, shown_by=by
        )
        if by == self._setting.me and sum(map(len, evidence.statements)) <= _WHOLE:
            news = Accusation(kind=evidence.kind, accused=evidence.accused, statements=evidence.statements)
            self._tasks.spawn(self._publish(news), "publishing evidence")

    def remember(self, proof: Proof) -> None:
        """Evidence that need not be told any more."""
        self.evidence[proof.accused] = proof
        if len(self.evidence) > _REMEMBERED:
            self.evidence.popitem(last=False)

    async def _publish(self, message: Any) -> None:
        endpoint = self._setting.endpoint
        if endpoint.gossip is not None:
            await endpoint.publish(message)

    # ---- hearing

    async def on_decision(self, message: Decision, context: Context) -> None:
        """Take a decided value, or ask for those since where this member is behind."""
        known = message.digest in self._heard
        self._remember(message.digest)
        mine = self._listener.place
        if known or (mine is not None and (message.epoch, message.round) < mine):
            return
        # the value that begins an epoch has the round of the last one before it
        is_next = mine is None or message.epoch > mine[0] or message.round == mine[1]
        if message.decided and is_next:
            self._listener.decided(decode(Decided, message.decided), context.sender)
        elif mine is not None:
            self._listener.catch_up(context.sender)

    async def on_operator_order(self, message: OperatorOrder, context: Context) -> None:
        """Take an operator's order."""
        verifier = self._setting.endpoint.verifier
        self._listener.ordered(unseal(message.order, run=self._setting.run, expect=Order, verifier=verifier))

    async def on_accusation(self, message: Accusation, context: Context) -> None:
        """Check evidence, write it down, and give it to the round machine.

        Raises:
            NodeError: It shows nothing.
        """
        evidence = Evidence(kind=message.kind, accused=message.accused, statements=message.statements)
        await self.on_evidence(evidence, context)

    async def on_evidence(self, message: Evidence, context: Context) -> None:
        """As ``on_accusation``, from the member that found it out.

        Raises:
            NodeError: It shows nothing.
        """
        if message.accused not in self.evidence and self._court.concerns(message.accused):
            proof = self._setting.rules.check_evidence(encode(message))
            self.accuse(proof, context.sender)
            self._court.accused(proof)

    def _remember(self, digest: bytes) -> None:
        self._heard[digest] = None
        if len(self._heard) > _REMEMBERED:
            self._heard.popitem(last=False)
