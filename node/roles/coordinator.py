"""The coordinator in its smallest form: it admits, writes the run's start record, bans, and begins new epochs.

It is never on the path of a round: killed, it stops only admissions. What it orders acts by being named in a value.
"""

import asyncio
import json
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from diloco.genesis import Genesis
from diloco.member.admission import Admission, admit, read_admission
from diloco.member.member import Member
from diloco.member.setting import Emit
from diloco.rounds import founding
from diloco.rounds.certificate import Certified
from diloco.rounds.records import Order, Reset, Start
from diloco.rounds.rescue import last_of, seats_of
from diloco.rounds.rules import Rules
from diloco.rounds.values import value_digest
from diloco.store.ledger import Ledger
from node.messages import Admitted, AskAdmission
from node.network import PROTOCOL, Network
from node.roles.crowding import PER_NETWORK, Crowding, network_of
from node.roles.invitations import Invitations
from node.roles.planned import Planned
from protocol.envelope import Sealed, seal
from protocol.errors import Code, NodeError
from protocol.files import write_whole
from protocol.identity import Identity, public_key_of
from protocol.messages import encode
from protocol.rpc import Context
from protocol.units import PeerId

TOKENS_FILE = "invitations.json"
PLANNED_FILE = "planned.json"

_REFUSED = 1024  # newcomers whose last refusal is remembered

EXPIRY = timedelta(days=30)
"""How long an admission lets its holder enter."""

RENEWED_BEFORE = EXPIRY / 2
"""A member whose admission lasts no longer than this may have a new one, with a newer anchor."""


class Voice(Protocol):
    """Gives orders to voters: the member on this node, or a coordinator without one."""

    @property
    def order_number(self) -> int:
        """The highest number that a value has taken up."""
        ...

    def give_order(self, sealed: Sealed[Order]) -> None:
        """Give an order to the voters."""
        ...


class Coordinator:
    """Holds the operator's key on the node that made the run.

    Args:
        operator: The operator's root key, or that of a delegate.
        genesis: The run.
        rules: Its rules.
        network: The node's network.
        ledger: The chain, for anchors.
        emit: The event log.
        clock: Unix seconds.
        invitations: File of the peers that may join under the policy ``invite``.
        delegation: What the root key leaves to the delegate (envelope bytes); empty for the root key itself.
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
        invitations: Path,
        delegation: bytes = b"",
    ) -> None:
        self._operator, self._genesis, self._rules = operator, genesis, rules
        self._network, self._ledger, self._emit, self._clock = network, ledger, emit, clock
        self._admitted: dict[PeerId, bytes] = {}
        self._let_train: set[PeerId] = set()
        self._last_order = 0
        self._invitations, self._delegation = invitations, delegation
        self.tokens = Invitations(invitations.with_name(TOKENS_FILE))
        self.planned = Planned(invitations.with_name(PLANNED_FILE))
        self._crowding = Crowding()
        self._refused: OrderedDict[PeerId, str] = OrderedDict()

    @property
    def has_root_key(self) -> bool:
        """Whether it signs with the root key itself, without which no run begins."""
        return not self._delegation

    def now(self) -> float:
        """Unix seconds as the members see them."""
        return self._clock()

    def decided(self) -> int:
        """The last decided round; -2 before there is any."""
        ledger = self._ledger()
        tip = ledger.tip() if ledger is not None else None
        return tip.value.round if tip is not None else -2

    def admit(self, peer: PeerId, roles: tuple[str, ...], held: bytes = b"", invitation: str = "") -> bytes:
        """An admission for a peer; the one it has while that lasts long enough, else a new one with the same seat.

        Args:
            peer: Who asks.
            roles: What it wants to do.
            held: The admission that it shows.
            invitation: The token that it shows.

        Raises:
            NodeError: ``RND_NOT_ADMITTED``: the run's policy does not let it in, or not yet.
        """
        if peer in self._network.banned:
            raise NodeError(Code.RND_BANNED, f"{peer} is banned from the run.", peer=peer)
        known = self._known(peer, held)
        if known is not None and known.message.expires_at - self._clock() > RENEWED_BEFORE.total_seconds():
            return known.raw
        by = self._let_in_by(peer, invitation)
        came_from = "" if known is not None else self._check_crowd(peer)
        ledger = self._ledger()
        tip = ledger.tip() if ledger is not None else None
        given = self._given(peer, roles)
        seat = "trainer" in given and (self._gives_seat(peer) if known is None else known.message.seat)
        admission = Admission(
            peer=peer,
            roles=given,
            seat=seat,
            anchor_epoch=tip.value.epoch if tip else 0,
            anchor_round=tip.value.round if tip else -2,
            anchor_value=tip.digest if tip else b"",
            expires_at=int(self._clock() + EXPIRY.total_seconds()),
            delegation=self._delegation,
        )
        raw = admit(self._operator, self._genesis.run_id, admission)
        self._admitted[peer] = raw
        if "trainer" in given:
            self._let_train.add(peer)
        self._crowding.note(came_from, peer, self._clock())
        self._emit(
            "admission.given", peer=peer, seat=seat, by=by, renewal=known is not None, expires_at=admission.expires_at
        )  # fmt: skip
        return raw

    def _given(self, peer: PeerId, roles: tuple[str, ...]) -> tuple[str, ...]:
        """What a peer may do of what it wants: judge only where the run names it; train where it wants nothing."""
        wanted = set(roles) & {"trainer", "coordinator", "rollout", "validator"}
        if "validator" in wanted and peer not in self._genesis.sections.rl.get("validators", ()):
            raise NodeError(Code.RND_NOT_ADMITTED, f"{peer} is not among the run's validators.", peer=peer)
        return tuple(sorted(wanted or {"trainer"}))

    def _let_in_by(self, peer: PeerId, invitation: str) -> str:
        """What lets a peer in: the policy, or an invitation.

        Raises:
            NodeError: ``RND_NOT_ADMITTED``.
        """
        section = self._genesis.sections.admission
        if section.policy == "allowlist" and peer not in section.allow:
            raise NodeError(Code.RND_NOT_ADMITTED, f"{peer} is not on the run's allowlist.", peer=peer)
        if section.policy != "invite":
            return section.policy
        if peer in self._invited() or self.tokens.invited(peer) or peer == self._network.me:
            return "invite"
        if not invitation:
            raise NodeError(
                Code.RND_NOT_ADMITTED, f"{peer} needs an invitation of the run's operator.", peer=peer
            )
        return f"invitation {self.tokens.redeem(invitation, peer, self._clock()).number}"

    def _check_crowd(self, peer: PeerId) -> str:
        """The network that a newcomer comes from.

        Raises:
            NodeError: ``RND_NOT_ADMITTED``: too many came from there of late; it says when the next may.
        """
        record = self._network.newcomers.get(peer)
        came_from = network_of(record.seen or record.host) if record is not None else ""
        turn = self._crowding.turn(came_from, peer, self._clock())
        if turn.place:
            raise NodeError(
                Code.RND_NOT_ADMITTED,
                f"{PER_NETWORK} newcomers of {came_from} were admitted within the hour; place {turn.place} of "
                f"{turn.waiting} in line, whose turn is in {math.ceil(turn.seconds / 60)} min.",
                fix="Wait; the node asks again by itself.", peer=peer,
            )  # fmt: skip
        return came_from

    def invite(self, peer: PeerId) -> None:
        """Let a peer in under the policy ``invite``; kept over restarts.

        Raises:
            NodeError: ``ID_BAD_PEER``.
        """
        public_key_of(peer)
        invited = sorted({*self._invited(), peer})
        write_whole(self._invitations, [json.dumps(invited).encode()])
        self._emit("invitation.given", peer=peer)

    def _invited(self) -> list[str]:
        try:
            return [str(peer) for peer in json.loads(self._invitations.read_bytes())]
        except (OSError, ValueError, TypeError):
            return []

    def _known(self, peer: PeerId, held: bytes) -> Sealed[Admission] | None:
        """The newest admission of a peer that this node has given, or that it shows."""
        found: list[Sealed[Admission]] = []
        for raw in (self._admitted.get(peer, b""), held):
            with suppress(NodeError):
                found.append(read_admission(raw, self._genesis.run_id, self._genesis.operator, peer))
        return max(found, key=lambda sealed: sealed.message.expires_at, default=None)

    def _gives_seat(self, peer: PeerId) -> bool:
        """Whether a newcomer votes. Where anyone may come, only who is there when the run begins does."""
        section, ledger = self._genesis.sections.admission, self._ledger()
        tip = ledger.tip() if ledger is not None else None
        if tip is not None and any(elector.peer == peer for elector in tip.value.electorate):
            return True  # it comes back without its data directory
        if section.policy == "open" and tip is not None:
            return False
        here = {peer for peer, record in self._network.members.items() if "trainer" in record.roles}
        return len(here | self._let_train) < section.seats

    async def on_ask_admission(self, message: AskAdmission, context: Context) -> Admitted:
        """Admit a newcomer."""
        if message.protocol != PROTOCOL:
            raise NodeError(
                Code.NET_VERSION,
                f"The run speaks protocol {PROTOCOL}, the newcomer {message.protocol} (package {message.software}).",
                peer=context.sender,
            )
        if self._known(context.sender, message.admission) is None:
            self._check_version(context.sender, message.software)
        try:
            raw = self.admit(context.sender, message.roles, message.admission, message.invitation)
        except NodeError as error:
            self._say_refused(context.sender, error)
            raise
        self._refused.pop(context.sender, None)
        return Admitted(admission=raw)

    def _check_version(self, peer: PeerId, software: str) -> None:
        """Whether a newcomer's package is in the run's window.

        Raises:
            NodeError: ``NET_VERSION``.
        """
        window = self._genesis.sections.admission.versions
        try:
            fits = SpecifierSet(window).contains(Version(software), prereleases=True)
        except InvalidVersion:
            fits = not window
        if not fits:
            raise NodeError(
                Code.NET_VERSION, f"The run takes versions {window} of the package, not {software[:40]!r}.",
                fix=f"Install a version of intellect-node that is {window}.", peer=peer,
            )  # fmt: skip

    def _say_refused(self, peer: PeerId, error: NodeError) -> None:
        """Write a refusal once: newcomers ask again and again."""
        if self._refused.get(peer) == error.sentence:
            return
        self._refused[peer] = error.sentence
        if len(self._refused) > _REFUSED:
            self._refused.popitem(last=False)
        self._emit("admission.refused", peer=peer, code=str(error.code), reason=error.sentence)

    def check_order(self, kind: str, name: str, value: str) -> None:
        """Whether an order could be given.

        Raises:
            NodeError: ``CFG_USAGE``: the parameter may not have that value.
        """
        if kind == "parameter" and not self._rules.accepts(name, value):
            named = ", ".join(self._genesis.sections.round.changeable) or "none in this run"
            raise NodeError(
                Code.CFG_USAGE, f"{name!r} may not be changed to {value!r}.",
                fix=f"What may be changed: {named}; the value has to be allowed by the run file's rules.",
            )  # fmt: skip

    def order(
        self, voice: Voice, kind: str, reason: str, *, peer: str = "", name: str = "", value: str = ""
    ) -> int:
        """Give an order, which acts from the round on that takes it up; returns its number.

        Args:
            voice: Passes it on.
            kind: See ``Order``.
            reason: In plain words.
            peer: Whom it is about, where it is about somebody.
            name: The parameter that changes, for ``parameter``.
            value: Its new value; empty for that of the genesis.

        Raises:
            NodeError: ``ID_BAD_PEER``; ``CFG_USAGE``: the parameter may not have that value.
        """
        if peer:
            public_key_of(peer)
        if kind == "ban":
            self._admitted.pop(PeerId(peer), None)
        self.check_order(kind, name, value)
        self._last_order = max(self._last_order, voice.order_number) + 1
        order = Order(
            number=self._last_order,
            kind=kind,
            peer=peer,
            reason=reason,
            name=name,
            value=value,
            delegation=self._delegation,
        )
        voice.give_order(seal(self._operator, self._genesis.run_id, order))
        self._emit("order.given", number=order.number, order=kind, peer=peer, reason=reason)
        return order.number

    def reset(self, member: Member, reason: str) -> tuple[int, int]:
        """Begin a new epoch after this node's last certified value, with the members that are here (rule 15).

        For a run whose quorum is lost for good. Contributions that are frozen stay so.

        Returns:
            The new epoch, and the round it begins with.

        Raises:
            NodeError: ``RND_CHAIN`` when this node's own state is not there yet.
        """
        state = member.state
        standing = member.standing()
        assert state is not None
        last, base, shown = last_of(state, *standing)
        here = [self._network.me, *member.presence.present()]
        present: dict[str, bool] = {}
        for peer in here:
            record = self._network.members.get(peer)
            seat = self._rules.seat_of(record.admission, peer) if record is not None else None
            if seat is not None:
                present[peer] = seat.seated
        peers = seats_of(last.value, present)
        lost = {peer: s.message.boot for peer, s in state.readys.items() if s.message.lost_record}
        value = founding.make_reset(
            self._rules, last.value, last.digest, base, peers, secrets.token_bytes(32), lost, state.epoch
        )
        askers = tuple(state.asks[peer].raw for peer in sorted(state.asks))
        reset = Reset(
            value=encode(value), reason=reason, askers=askers, last=shown, delegation=self._delegation
        )
        sealed = seal(self._operator, self._genesis.run_id, reset)
        member.give_reset(sealed.raw)
        self._emit(
            "reset.given", epoch=value.epoch, round=value.round + 1, members=sorted(peers), reason=reason
        )
        return value.epoch, value.round + 1

    def _boot(self, peer: PeerId) -> bytes:
        """The boot nonce of a peer's process."""
        return self._network.boot if peer == self._network.me else self._network.members[peer].boot

    def _trainers(self) -> set[PeerId]:
        """Who is here to train."""
        here = {peer for peer in self._network.peers() if "trainer" in self._network.members[peer].roles}
        return here | ({self._network.me} if "trainer" in self._network.roles else set())

    async def begin(self) -> Certified:
        """Wait until enough members announced themselves, then write the start record (docs/rounds.md, words).

        With time over, so many as are here are enough, but not none: a run that nobody votes in could never go on.
        """
        section = self._genesis.sections.round
        loop = asyncio.get_running_loop()
        end = loop.time() + section.start_within.total_seconds()
        shown = 0
        while True:
            here = self._trainers()
            if len(here) >= section.start_members or (here and loop.time() >= end):
                break
            if len(here) != shown:
                shown, left = len(here), max(0.0, end - loop.time())
                wanted = section.start_members
                sentence = f"{shown} of {wanted} members are here; the run starts in {left:.0f} s at most."
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
        boots = {peer: self._boot(PeerId(peer)) for peer in seats}
        value = founding.make_start(self._rules, self._genesis.base, seats, boots, secrets.token_bytes(32))
        data = encode(value)
        sealed = seal(self._operator, self._genesis.run_id, Start(value=data))
        self._emit("run.started", members=sorted(seats))
        return Certified(value, data, value_digest(data), start=sealed.raw)
