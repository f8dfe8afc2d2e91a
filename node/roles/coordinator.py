"""The coordinator in its smallest form: it admits newcomers and writes the run's start record.

It is never on the path of a round: killed, it stops only admissions.
"""

import asyncio
import secrets
from collections.abc import Callable
from datetime import timedelta

from diloco.genesis import Genesis
from diloco.member.admission import Admission, admit
from diloco.member.setting import Emit
from diloco.rounds import planning
from diloco.rounds.certificate import Certified
from diloco.rounds.planning import Rules, value_digest
from diloco.rounds.statements import Start
from diloco.store.ledger import Ledger
from node.messages import AskAdmission, Admitted
from node.network import PROTOCOL, Network
from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.messages import encode
from protocol.rpc import Context
from protocol.units import PeerId

_EXPIRY = timedelta(days=30)


class Coordinator:
    """Holds the operator's key on the node that made the run.

    Args:
        operator: The operator's key.
        genesis: The run.
        rules: Its rules.
        network: The node's network.
        ledger: The chain, for anchors.
        emit: The event log.
        clock: Unix seconds.
    """

    def __init__(
        self,
        operator: Identity,
        genesis: Genesis,
        rules: Rules,
        network: Network,
        ledger: Callable[[], Ledger | None],
        emit: Emit,
        clock: Callable[[], float],
    ) -> None:
        self._operator, self._genesis, self._rules = operator, genesis, rules
        self._network, self._ledger, self._emit, self._clock = network, ledger, emit, clock
        self._admitted: dict[PeerId, bytes] = {}

    def admit(self, peer: PeerId, roles: tuple[str, ...]) -> bytes:
        """An admission for a peer; the same one again for a peer that has one.

        Raises:
            NodeError: ``RND_NOT_ADMITTED``: the run's policy does not let it in.
        """
        if peer in self._admitted:
            return self._admitted[peer]
        section = self._genesis.sections.admission
        if section.policy == "allowlist" and peer not in section.allow:
            raise NodeError(Code.RND_NOT_ADMITTED, f"{peer} is not on the run's allowlist.", peer=peer)
        if section.policy == "invite":
            raise NodeError(Code.RND_NOT_ADMITTED, f"{peer} needs an invitation of the run's operator.", peer=peer)
        ledger = self._ledger()
        tip = ledger.tip() if ledger is not None else None
        seat = len(self._seated()) < section.seats
        admission = Admission(
            peer=peer,
            roles=tuple(sorted({"trainer", *roles} & {"trainer", "coordinator"})),
            seat=seat,
            anchor_round=tip.value.round if tip else -2,
            anchor_value=tip.digest if tip else b"",
            expires_at=int(self._clock() + _EXPIRY.total_seconds()),
        )
        raw = admit(self._operator, self._genesis.run_id, admission)
        self._admitted[peer] = raw
        self._emit("admission.given", peer=peer, seat=seat)
        return raw

    def _seated(self) -> set[PeerId]:
        return {*self._admitted, *self._network.members}

    async def on_ask_admission(self, message: AskAdmission, context: Context) -> Admitted:
        """Admit a newcomer."""
        if message.protocol != PROTOCOL:
            raise NodeError(
                Code.NET_VERSION,
                f"The run speaks protocol {PROTOCOL}, the newcomer {message.protocol} (package {message.software}).",
                peer=context.sender,
            )
        return Admitted(admission=self.admit(context.sender, message.roles))

    async def begin(self) -> Certified:
        """Wait until enough members announced themselves, then write the start record (ROUNDS, electorate)."""
        section = self._genesis.sections.round
        loop = asyncio.get_running_loop()
        end = loop.time() + section.start_within.total_seconds()
        shown = 0
        while True:
            here = {self._network.me, *self._network.peers()}
            if len(here) >= section.start_members or loop.time() >= end:
                break
            if len(here) != shown:
                shown, left = len(here), end - loop.time()
                sentence = f"{shown} of {section.start_members} members are here; the run starts in at most {left:.0f} s."
                self._emit(
                    "node.phase", phase="joining", reason="members", sentence=sentence, until=left, missing=[],
                    round=-1, attempt=0,
                )  # fmt: skip
            await asyncio.sleep(0.5)
        seats: dict[str, bool] = {}
        for peer in sorted(here):
            raw = self._admitted.get(peer) or self._network.members[peer].admission
            seat = self._rules.seat_of(raw, peer)
            if seat is not None:
                seats[peer] = seat.seated
        value = planning.make_start(self._rules, self._genesis.base, seats, secrets.token_bytes(32))
        data = encode(value)
        sealed = seal(self._operator, self._genesis.run_id, Start(value=data))
        self._emit("run.started", members=sorted(seats))
        return Certified(value, data, value_digest(data), start=sealed.raw)
