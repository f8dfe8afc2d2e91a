"""The chain of certified values: taken from the ledger on disk, asked of peers, verified link by link."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import dropwhile

from diloco.member.messages import AskLedger
from diloco.member.setting import Setting, anchor_of
from diloco.rounds.certificate import Certified
from diloco.rounds.delta import apply_delta, encode_delta
from diloco.rounds.proofs import Adoption, Proofs
from diloco.rounds.recovery import standing
from diloco.rounds.values import START_ROUND, Decided, parse_value, value_digest
from diloco.store.ledger import Ledger, to_message
from protocol.errors import Code, NodeError
from protocol.rpc import Context
from protocol.units import PeerId

_PROGRESS = timedelta(seconds=10)
_LOOK_BACK = 100  # decided rounds that are compared with a chain that does not fit
_MOST_ADOPTED = 64 << 20  # bytes of another side's links that are read at once
_LAST = 1 << 62  # more than any round


class Chain:
    """The certified values that this member knows and believes.

    Args:
        setting: The member's setting.
        ledger: Where they are stored.

    Attributes:
        anchor: A chain that contradicts it is not the run's.
    """

    def __init__(self, setting: Setting, ledger: Ledger) -> None:
        self._setting, self.ledger = setting, ledger
        self.anchor = setting.anchor
        self._believed = ledger.has_started()
        if not self._believed and not self.anchored:
            ledger.cut(None)  # of one who died while it had not come to its anchor yet
        genesis = setting.genesis
        self._proofs = Proofs(setting.run, genesis.operator, genesis.base, setting.endpoint.verifier)

    @property
    def tip(self) -> Certified | None:
        """The newest certified value here."""
        return self.ledger.tip()

    def readmitted(self, raw: bytes) -> None:
        """This node's admission was renewed: the anchor that it names, if any, is newer."""
        self.anchor = anchor_of(raw, self._setting.genesis, self._setting.me) or self.anchor

    def signed_by_root(self, certified: Certified) -> bool:
        """Whether the root key itself signed a start record or a reset."""
        return self._proofs.by_root(certified)

    def read_reset(self, tip: Certified, raw: bytes) -> Certified:
        """Verify a reset that follows this member's chain, see ``Proofs.reset``."""
        return self._proofs.reset(tip, raw, self.ledger.links)

    def rival(self, tip: Certified, decided: Decided) -> Certified | None:
        """The other side of a fork, if a message proves one against what is stored here (rules 15 and 17).

        Raises:
            NodeError: It proves nothing.
        """
        origin = self.ledger.origin()
        epoch, number, digest = decided.epoch, decided.round, decided.digest
        if not decided.previous:
            value = parse_value(decided.value)
            epoch, number, digest = value.epoch, value.round, value_digest(decided.value)
        if origin is None or epoch != tip.value.epoch or number > tip.value.round:
            return None
        if decided.start:
            return self._proofs.rival(None, origin, decided) if epoch > 0 else None
        mine = self.ledger.get(number)
        if mine is None or mine.digest == digest or mine.value.epoch != epoch:
            return None
        before = origin if number == origin.value.round + 1 else self.ledger.get(number - 1)
        if before is not None and decided.previous:
            decided = self._whole(before, decided)
        return self._proofs.rival(before, mine, decided)

    def standing(self, tip: Certified, base: bytes) -> tuple[Certified, bytes]:
        """The last value that all sides of a fork have, and the state after it; the tip where there is no fork.

        Args:
            tip: This member's last certified value.
            base: State digest after it.
        """
        origin = self.ledger.origin()
        assert origin is not None
        return standing(tip, base, origin, self.ledger.rival(), self.ledger.links)

    async def fork_at(self, peer: PeerId, tip: Certified) -> Certified | None:
        """What a peer's chain, which this one does not follow, proves against it: another reset or certificate.

        Raises:
            NodeError: The peer cannot be asked, or what it shows does not hold.
        """
        epoch, first = tip.value.epoch, max(tip.value.round - _LOOK_BACK, START_ROUND)
        for question in (
            AskLedger(epoch=epoch - 1, round=_LAST, limit=1),
            AskLedger(epoch=epoch, round=first),
        ):
            if question.epoch < 0:
                continue  # there is one start record
            async with aclosing(self._setting.endpoint.stream(peer, question, progress=_PROGRESS)) as answers:
                async for decided in answers:
                    if (rival := self.rival(tip, decided)) is not None:
                        return rival
        return None

    async def overtaken(self, peer: PeerId, tip: Certified) -> tuple[Certified, ...]:
        """What a peer's chain has since it parted from this one, up to a later epoch that the root key began.

        Raises:
            NodeError: The peer cannot be asked, or it shows no such epoch.
        """
        for origin in self.ledger.origins():
            named = (c for c in self.ledger.links(origin.value.round) if c.digest == origin.value.previous)
            adoption = Adoption(self._proofs, next(named, None), tip.value.epoch, self.ledger.links)
            with suppress(NodeError):  # they parted before this epoch began
                await self._adopt(peer, adoption, origin.value.epoch - 1, origin.value.round)
            if adoption.whole:
                return tuple(dropwhile(self.ledger.has, adoption.found))
        raise NodeError(Code.RND_CHAIN, "The root key began no later epoch on the other side of the fork.")

    async def _adopt(self, peer: PeerId, adoption: Adoption, epoch: int, round_number: int) -> None:
        """Take a peer's links after a place, as many as are kept in memory at once."""
        room, more = _MOST_ADOPTED, True
        while more and not adoption.whole:
            more = False
            begin = START_ROUND - 1 if epoch < 0 else round_number
            question = AskLedger(epoch=max(epoch, 0), round=begin, limit=100)
            async with aclosing(self._setting.endpoint.stream(peer, question, progress=_PROGRESS)) as answers:
                async for decided in answers:
                    if adoption.whole or room < 0:
                        return
                    link = adoption.take(self._whole(adoption.last, decided))
                    room -= len(link.data) + sum(map(len, link.votes)) + len(link.start)
                    epoch, round_number, more = link.value.epoch, link.value.round, True

    def read(self, tip: Certified | None, decided: Decided) -> Certified:
        """Verify that a message holds the certified value after ``tip``.

        Raises:
            NodeError: ``RND_CHAIN``, ``RND_CERTIFICATE`` or one of the envelope.
        """
        certified = self._proofs.follow(tip, self._whole(tip, decided), self.ledger.links)
        if self.anchor is not None and self.anchor.contradicts(certified):
            raise NodeError(
                Code.RND_CHAIN,
                f"The chain contradicts this node's admission in epoch {self.anchor.epoch}, round {self.anchor.round}.",
            )
        return certified

    def _whole(self, tip: Certified | None, decided: Decided) -> Decided:
        """The message with the whole value, which may have come as a delta to ``tip``."""
        if not decided.previous or decided.start:
            return decided
        if tip is None or decided.previous != tip.digest:
            raise NodeError(Code.RND_CHAIN, f"A delta to round {decided.round} does not start from here.")
        value = apply_delta(self._setting.rules, tip.value, tip.digest, decided.value, decided.digest)
        return replace(decided, value=value, previous=b"", digest=b"", epoch=0, round=0)

    def brief(self, before: Certified | None, certified: Certified) -> Decided:
        """A decided value as one takes it who has the value before: a delta where that is shorter."""
        whole = to_message(certified)
        if before is None or certified.start or certified.value.previous != before.digest:
            return whole
        try:
            delta = encode_delta(self._setting.rules, before.value, certified.value)
        except NodeError:  # larger than a message may be
            return whole
        if len(delta) >= len(certified.data):
            return whole
        value = certified.value
        return replace(
            whole, value=delta, previous=before.digest, digest=certified.digest, epoch=value.epoch,
            round=value.round,
        )  # fmt: skip

    @property
    def anchored(self) -> bool:
        """Whether this member's chain has come to its anchor, or had no need to: the member is in the run already."""
        tip = self.tip
        if self.anchor is None or tip is None:
            return self.anchor is None
        value, me = tip.value, self._setting.me
        inside = any(elector.peer == me for elector in value.electorate) or me in value.members
        return self.anchor.reached(value) or (self._believed and inside)

    async def ask(self, peer: PeerId, tip: Certified | None, limit: int = 100) -> list[Certified]:
        """The verified values that follow ``tip``, from one peer; empty when it has none.

        Raises:
            NodeError: The peer cannot be asked, or what it shows does not hold.
        """
        found: list[Certified] = []
        if tip is None:
            question = AskLedger(round=START_ROUND - 1, limit=limit)
        else:
            question = AskLedger(epoch=tip.value.epoch, round=tip.value.round, limit=limit, digest=tip.digest)
        async with aclosing(self._setting.endpoint.stream(peer, question, progress=_PROGRESS)) as answers:
            async for decided in answers:
                tip = self.read(tip, decided)
                found.append(tip)
                if len(found) >= limit:
                    break
        return found

    async def extend(self, peers: Iterable[PeerId]) -> int:
        """Ask peers one after the other for what follows this member's tip, and store it.

        Returns:
            How many values were new.
        """
        new = 0
        for peer in peers:
            new += await self._extend_from(peer)
        return new

    async def _extend_from(self, peer: PeerId) -> int:
        """Store what follows this member's tip at one peer; nothing of it where it does not come to the anchor.

        A chain forged with the keys of former voters can be as long as it likes, but it does not hold the anchor.
        """
        before, new = self.tip, 0
        try:
            while found := await self.ask(peer, self.tip):
                for certified in found:
                    self.ledger.append(certified)
                new += len(found)
        except NodeError as error:
            if error.code in (Code.RND_CHAIN, Code.RND_CERTIFICATE, Code.WIRE_SIGNATURE):
                self._refuse(peer, error)
        if new and not self.anchored:
            assert self.anchor is not None
            self.ledger.cut(before)
            self._refuse(
                peer,
                NodeError(
                    Code.RND_CHAIN,
                    f"The chain ends before epoch {self.anchor.epoch}, round {self.anchor.round}, which this node's "
                    "admission names.",
                ),
            )
            return 0
        return new

    def _refuse(self, peer: PeerId, error: NodeError) -> None:
        self._setting.emit("chain.refused", peer=peer, code=str(error.code), reason=error.sentence)

    async def on_ask_ledger(self, message: AskLedger, context: Context) -> AsyncIterator[Decided]:
        """Answer with certified values."""
        for decided in self.since(message.epoch, message.round, message.limit, message.digest):
            yield decided

    def since(self, epoch: int, round_number: int, limit: int, digest: bytes = b"") -> Iterator[Decided]:
        """What was decided after a round; in deltas for one who has that round's value, of this digest."""
        before = self.ledger.get(round_number) if digest else None
        before = before if before is not None and before.digest == digest else None
        for certified in self.ledger.after(epoch, round_number, min(limit, 100)):
            yield self.brief(before, certified)
            before = certified
