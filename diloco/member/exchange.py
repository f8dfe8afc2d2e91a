"""The bytes of a round between members: running reduces, moving ownership, fetching what a value names."""

import asyncio
from collections import Counter
from collections.abc import Callable

from diloco.member.auditing import Auditing
from diloco.member.findings import Findings
from diloco.member.holding import Holding
from diloco.member.outgoing import Outgoing
from diloco.member.presence import Presence
from diloco.member.setting import Setting
from diloco.member.streams import LivingStreams
from diloco.reduce.gathering import Attempt
from diloco.reduce.gathering import Setting as ReduceSetting
from diloco.reduce.messages import Header
from diloco.reduce.rebuild import rebuild
from diloco.reduce.reduction import Reduction
from diloco.rounds.events import Event, Held, Reduce, Reduced, Unheld
from diloco.rounds.evidence import Proof, contradiction
from diloco.rounds.roster import Plan
from diloco.rounds.state import State
from diloco.rounds.statements import Reassign
from diloco.rounds.values import Value, parse_value
from protocol.envelope import Sealed, unseal
from protocol.errors import Code, NodeError
from protocol.units import PeerId


class Exchange:
    """Carries out what the round machine asks about bytes.

    Args:
        setting: The member's setting.
        holding: What is held of the round.
        presence: Who is alive.
        outgoing: Gives reassignments to the voters.
        findings: Takes how fast contributions come.
        auditing: Keeps what this member averages, and evidence.
        state: The round machine's state now.
        post: Gives the machine an event.
        accused: Takes evidence.
    """

    def __init__(
        self,
        setting: Setting,
        holding: Holding,
        presence: Presence,
        outgoing: Outgoing,
        findings: Findings,
        auditing: Auditing,
        *,
        state: Callable[[], State],
        post: Callable[[Event], None],
        accused: Callable[[Proof], None],
    ) -> None:
        self._setting, self._holding, self._presence, self._outgoing = setting, holding, presence, outgoing
        self._state, self._post = state, post
        self._findings, self._accused = findings, accused
        holding.doubt = self._doubt
        self._reducing = ReduceSetting(
            me=setting.me,
            grid=setting.grid,
            codec=setting.codec,
            how=setting.rules.aggregation,
            streams=LivingStreams(setting.endpoint, presence),
            seal=outgoing.seal,
            unseal=lambda raw: unseal(
                raw, run=setting.run, expect=Header, verifier=setting.endpoint.verifier
            ),
            progress=setting.genesis.sections.deadline.progress,
            gone=lambda peer: peer in presence.dead,
            note=setting.emit,
            measured=findings.rates.add,
            court=auditing.court,
            keep=auditing.shown.write,
            accuse=auditing.accuse,
            doubt=self._doubt,
        )

    async def reduce(self, asked: Reduce) -> None:
        """Run the reduce of a free proposal; the leader reports when it holds every chunk, durably.

        A round that was decided before it could begin is not reduced: its owners have gone on, and who needs its bytes
        would wait for what never comes before it asks for them.
        """
        state = self._state()
        if (asked.epoch, asked.round) != (state.epoch, state.round):
            return
        emit, clock = self._setting.emit, self._setting.clock
        plan, leader, attempt = asked.plan, asked.leader, asked.attempt
        patience = self._state().attempt_length() / 2
        envelopes = {
            entry.peer: sealed.raw
            for entry in plan.roster
            if (sealed := self._state().readys.get(entry.peer)) and sealed.message == plan.readys[entry.peer]
        }
        which = Attempt(asked.epoch, asked.round, attempt, leader, plan, patience, envelopes)
        mine = any(entry.peer == self._setting.me for entry in plan.roster)
        reduction = Reduction(
            self._reducing, which, self._holding.frozen if mine else None, self._move,
            kept=lambda basis: self._holding.signed(basis).values(),
        )  # fmt: skip
        emit(
            "reduce.begin", round=which.round, attempt=attempt, leader=leader,
            roster=[entry.peer for entry in plan.roster], chunks=len(plan.owners),
            owned=dict(Counter(plan.owners)),
        )  # fmt: skip
        began = clock()
        await self._holding.begin(reduction)
        await reduction.ended.wait()
        self._findings.report()
        if not reduction.complete:
            return
        emit("reduce.end", round=which.round, attempt=attempt, seconds=clock() - began)
        if leader != self._setting.me:
            return
        data = [reduction.frames[chunk].data for chunk in range(len(plan.owners))]
        entries = reduction.entries
        if entries:
            await asyncio.to_thread(self._holding.store.write, which.epoch, which.round, entries, data)
        self._post(Reduced(which.epoch, which.round, attempt, entries))

    def _doubt(self, one: bytes, other: bytes) -> None:
        """An owner that signed two versions of a chunk in one attempt has proved that it lies (rule 16)."""
        try:
            proof = contradiction(self._reducing.unseal(one), self._reducing.unseal(other))
        except NodeError:
            return
        if proof is not None:
            self._accused(proof)

    def _move(self, order: Reassign) -> None:
        sealed = self._outgoing.seal(order)
        self._outgoing.say(sealed)
        self.reassigned(sealed)

    def reassigned(self, sealed: Sealed[Reassign]) -> None:
        """A leader moved chunks."""
        reduction, order = self._holding.reduction, sealed.message
        if reduction is None or sealed.sender != reduction.attempt.leader:
            return
        if (order.epoch, order.round) == (reduction.attempt.epoch, reduction.attempt.round):
            reduction.reassign(order)

    async def fetch(self, data: bytes, plan: Plan | None) -> None:
        """Get and check every byte that a value names, and report it."""
        try:
            value = parse_value(data)
            await self._gather(value, plan)
        except NodeError as error:
            self._post(Unheld(data, error.sentence))
        except ValueError as error:  # no value at all: a vote for it was reported that cannot have been given
            self._post(Unheld(data, f"{error}."))
        else:
            self._post(Held(data))

    async def _gather(self, value: Value, plan: Plan | None) -> None:
        """Every byte from whoever holds it; what nobody holds is reduced again from the frozen contributions."""
        try:
            await self._holding.gather(value, plan, self.holders(value.round))
            return
        except NodeError as error:
            if error.code != Code.SHC_NO_HOLDER:
                raise
        state = self._state()
        if (value.epoch, value.round) != (state.epoch, state.round):
            raise NodeError(Code.SHC_NO_HOLDER, f"The bytes of round {value.round} cannot be had.")
        readys = {peer: sealed.message for peer, sealed in state.readys.items()}
        missing = self._holding.missing(value)
        found = await rebuild(
            self._reducing, value, missing, readys, self._holding.frozen, state.attempt_length() / 2
        )
        self._setting.emit("bytes.rebuilt", round=value.round, missing=len(missing), rebuilt=len(found))
        self._holding.keep(value.round, found.values())
        await self._holding.gather(value, plan, [])

    def holders(self, round_number: int) -> list[PeerId]:
        """Who may hold a round's bytes: its leader first, then everyone alive."""
        state = self._state()
        alive = [peer for peer in self._outgoing.everyone() if peer not in self._presence.dead]
        if state.round == round_number:
            leader = state.leader(state.attempt)
            alive.sort(key=lambda peer: peer != leader)
        return alive
