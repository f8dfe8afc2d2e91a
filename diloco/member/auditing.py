"""Checking owners' work, showing one's own, and what comes of a lie (docs/rounds.md, audits).

When the round after a round is decided, its beacon says who checks which chunk of it. The auditor asks the owner for
what it averaged, averages again, and compares bytes. It also checks a chunk of its own choice that nobody can foresee.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from blake3 import blake3

from diloco.member.findings import Findings
from diloco.member.outgoing import Outgoing
from diloco.member.presence import Presence
from diloco.member.setting import Setting, Tasks
from diloco.reduce.evidence import Court, judge, statement_digest
from diloco.reduce.messages import Accusation, Exhibit, Header, PullExhibits
from diloco.reduce.reduction import Signed
from diloco.rounds.audits import drawn_chunk
from diloco.rounds.state import State
from diloco.rounds.values import Value
from diloco.store.exhibits import Exhibits
from protocol.envelope import Sealed, unseal
from protocol.errors import Code, NodeError
from protocol.rpc import Context
from protocol.units import PeerId

_TRIES = 3  # an owner that is only restarting is asked again
_MOST_EXHIBITS = 4097  # a statement, and the contributions of the longest roster
_MOST_AT_ONCE = 2
_MOST_KEPT = 64  # liars of whom the evidence stays, the last ones
_SECRET = "intellect-node audit of one's own choice v1"


class Auditing:
    """Audits of decided rounds, and evidence.

    Args:
        setting: The member's setting.
        tasks: Where audits run.
        findings: Takes what is found out.
        presence: Who is alive.
        outgoing: Sends accusations.
        state: The round machine's state now, None before this member has begun.

    Attributes:
        shown: What this member averaged in the last rounds.
        evidence: What shows that a member lied.
        court: Judges exhibits.
        sentences: What liars did, by who did it.
    """

    def __init__(
        self,
        setting: Setting,
        tasks: Tasks,
        findings: Findings,
        presence: Presence,
        outgoing: Outgoing,
        *,
        state: Callable[[], State | None],
    ) -> None:
        self._setting, self._tasks, self._findings = setting, tasks, findings
        self._presence, self._outgoing, self._state = presence, outgoing, state
        self.shown = Exhibits(setting.folder / "shown")
        self.evidence = Exhibits(setting.folder / "evidence")
        self.court = Court(
            grid=setting.grid,
            codec=setting.codec,
            how=setting.rules.aggregation,
            unseal_header=self._unseal_header,
            unseal_ready=setting.rules.unseal_ready,
        )
        self.sentences: dict[str, str] = {}
        self._signatures: dict[int, dict[int, Signed]] = {}
        self._accusations: dict[str, Sealed[Accusation]] = {}
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)
        self._hearing: set[str] = set()

    def _unseal_header(self, raw: bytes) -> Sealed[Header]:
        setting = self._setting
        return unseal(raw, run=setting.run, expect=Header, verifier=setting.endpoint.verifier)

    # ---- audits

    def decided(self, value: Value, signatures: dict[int, Signed], every: bool = False) -> None:
        """A round is decided: check chunks of the one before it, which nobody could foresee until now.

        Args:
            value: The value.
            signatures: Its chunks as their owners signed them, as far as they came here.
            every: The operator wants every chunk checked by every voter.
        """
        before = self._signatures.get(value.round - 1, {})
        self._signatures = {value.round - 1: before, value.round: signatures}
        here = {*(elector.peer for elector in value.electorate), *value.members}
        self._findings.convicted &= here
        self._accusations = {peer: word for peer, word in self._accusations.items() if peer in here}
        for accusation in self._accusations.values():
            self._tell(accusation)
        picks = [before[chunk] for chunk in self._picks(value, before, every)]
        self._tasks.spawn(self._audit(value.round, picks), "audit")

    def _picks(self, value: Value, signatures: dict[int, Signed], every: bool) -> list[int]:
        """The chunks that this member checks: one of each owner that it is drawn for, and one of its own choice."""
        me, voters = str(self._setting.me), [elector.peer for elector in value.electorate]
        by_owner: dict[str, list[int]] = {}
        for chunk, signed in sorted(signatures.items()):
            if signed.signer != me:
                by_owner.setdefault(signed.signer, []).append(chunk)
        if me not in voters or not by_owner:
            return []
        if every:
            return sorted(chunk for chunks in by_owner.values() for chunk in chunks)
        drawn = {drawn_chunk(value.beacon, owner, me, voters, chunks) for owner, chunks in by_owner.items()}
        others = sorted(chunk for chunks in by_owner.values() for chunk in chunks)
        secret = blake3(self._begun().beacon_key, derive_key_context=_SECRET).update(value.beacon).digest()
        drawn.add(others[int.from_bytes(secret, "big") % len(others)])
        return sorted(chunk for chunk in drawn if chunk is not None)

    def _begun(self) -> State:
        state = self._state()
        assert state is not None
        return state

    async def _audit(self, round_number: int, picks: Sequence[Signed]) -> None:
        await asyncio.to_thread(self.shown.prune, round_number - 1)
        shown = await asyncio.gather(*(self._check(round_number - 1, signed) for signed in picks))
        self._findings.unshown = {
            signed.signer for signed, shows in zip(picks, shown, strict=True) if not shows
        }
        self._findings.report()

    async def _check(self, round_number: int, signed: Signed) -> bool:
        """Whether an owner showed what it had averaged; one that is gone or has left is not asked to."""
        owner, chunk = signed.signer, signed.frame.chunk
        question = PullExhibits(statement=statement_digest(signed.frame.header), chunk=chunk)
        for attempt in range(_TRIES):
            value = self._begun().value
            stays = owner in value.members or any(elector.peer == owner for elector in value.electorate)
            if owner in self._presence.dead or not stays:
                return True
            try:
                async with self._places:
                    exhibits = await self._pull(owner, question)
                    liar = await asyncio.to_thread(judge, self.court, exhibits)
            except NodeError as error:
                if error.code in (Code.NET_UNREACHABLE, Code.NET_TIMEOUT) and attempt + 1 < _TRIES:
                    await asyncio.sleep(self._setting.genesis.sections.deadline.progress.total_seconds())
                    continue
                self._setting.emit(
                    "audit.unshown", peer=owner, round=round_number, chunk=chunk, code=str(error.code),
                    reason=error.sentence,
                )  # fmt: skip
                return False
            self._setting.emit("audit", peer=owner, round=round_number, chunk=chunk, true=liar is None)
            if liar is not None:
                await self._convict(round_number, liar, exhibits)
            return True
        return False

    async def _pull(self, peer: str, question: PullExhibits) -> list[Exhibit]:
        """What a peer shows of a statement.

        Raises:
            NodeError: It cannot be asked; ``RND_EVIDENCE``: it shows nothing, or not that statement.
        """
        most = max(self._setting.codec.nbytes(n) for n in self._setting.rules.chunk_sizes)
        deadline = self._setting.genesis.sections.deadline
        exhibits: list[Exhibit] = []
        stream = self._setting.endpoint.stream(PeerId(peer), question, progress=deadline.progress)
        try:
            async with asyncio.timeout(deadline.attempt_max.total_seconds()), aclosing(stream) as answers:
                async for exhibit in answers:
                    exhibits.append(exhibit)
                    if len(exhibit.data) > most or len(exhibits) > _MOST_EXHIBITS:
                        raise NodeError(Code.RND_EVIDENCE, "More was shown than there can be.", peer=peer)
        except TimeoutError:
            raise NodeError(
                Code.RND_EVIDENCE, "It was shown more slowly than a whole round takes.", peer=peer
            ) from None
        if not exhibits or statement_digest(exhibits[0].statement) != question.statement:
            raise NodeError(Code.RND_EVIDENCE, "Nothing was shown of that statement.", peer=peer)
        return exhibits

    # ---- evidence

    def accuse(self, round_number: int, liar: str, exhibits: Sequence[Exhibit]) -> None:
        """Keep evidence that this member has come upon, and show it to all voters."""
        self._tasks.spawn(self._convict(round_number, liar, exhibits), "evidence")

    async def _convict(
        self, round_number: int, liar: str, exhibits: Sequence[Exhibit], shown_by: str = ""
    ) -> None:
        if liar in self._findings.convicted or liar in self._begun().value.banned:
            return
        self._findings.convicted.add(liar)
        statement = statement_digest(exhibits[0].statement)
        chunk = exhibits[1].chunk
        try:
            await asyncio.to_thread(self.evidence.write, round_number, statement, chunk, exhibits)
            await asyncio.to_thread(self.evidence.keep, _MOST_KEPT)
        except NodeError as error:  # others will have to find out by themselves
            self._setting.emit("evidence.lost", code=str(error.code), reason=error.sentence)
        what = "false-chunk" if exhibits[0].basis else "false-contribution"
        if len(self.sentences) >= _MOST_KEPT:
            del self.sentences[next(iter(self.sentences))]
        self.sentences[liar] = f"{liar} signed what is not true of chunk {chunk} in round {round_number}."
        self._setting.emit(
            "evidence", accused=liar, what=what, round=round_number, chunk=chunk,
            shown_by=shown_by or self._setting.me, sentence=self.sentences[liar],
        )  # fmt: skip
        accusation = self._outgoing.seal(Accusation(accused=liar, statement=statement, chunk=chunk))
        self._accusations[liar] = accusation
        self._tell(accusation)
        self._findings.report()

    def _tell(self, accusation: Sealed[Accusation]) -> None:
        for elector in self._begun().value.electorate:
            if elector.peer not in (self._setting.me, accusation.message.accused):
                self._outgoing.tell(PeerId(elector.peer), accusation)

    async def on_accusation(self, message: Accusation, context: Context) -> None:
        """A voter says that it has evidence: have it shown, and judge it."""
        state = self._state()
        if state is None:
            return
        accuser, accused = str(context.sender), message.accused
        voters = {elector.peer for elector in state.value.electorate}
        if accuser not in voters or accused in self._findings.convicted or accuser in self._hearing:
            return
        self._hearing.add(accuser)
        self._tasks.spawn(self._hear(accuser, message), "accusation")

    async def _hear(self, accuser: str, message: Accusation) -> None:
        try:
            async with self._places:
                question = PullExhibits(statement=message.statement, chunk=message.chunk)
                exhibits = await self._pull(accuser, question)
                liar = await asyncio.to_thread(judge, self.court, exhibits)
            if liar != message.accused:
                raise NodeError(Code.RND_EVIDENCE, f"It shows nothing against {message.accused}.")
            number = self._round_of(exhibits[0])
            await self._convict(number, liar, exhibits, shown_by=accuser)
        except NodeError as error:
            self._setting.emit(
                "accusation.refused", peer=accuser, accused=message.accused, code=str(error.code),
                reason=error.sentence,
            )  # fmt: skip
        finally:
            self._hearing.discard(accuser)

    def _round_of(self, first: Exhibit) -> int:
        opened: Sealed[Any] = (
            self._unseal_header(first.statement)
            if first.basis
            else self._setting.rules.unseal_ready(first.statement)
        )
        return int(opened.message.round)

    # ---- showing

    async def on_pull_exhibits(self, message: PullExhibits, context: Context) -> AsyncIterator[Exhibit]:
        """Show what this member averaged, or evidence that it holds."""
        for kept in (self.shown, self.evidence):
            exhibits = kept.read(message.statement, message.chunk)
            while (exhibit := await asyncio.to_thread(next, exhibits, None)) is not None:
                yield exhibit
