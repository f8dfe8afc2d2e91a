"""Whom the coordinator admits, with a seat or without, and how admissions are renewed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diloco.config import AdmissionSection
from diloco.genesis import Genesis
from diloco.member.admission import Admission, read_admission, seats
from diloco.member.setting import rules_of
from diloco.rounds import founding
from diloco.rounds.certificate import Certified
from diloco.rounds.records import Start
from diloco.rounds.values import value_digest
from diloco.store.ledger import Ledger
from node.messages import AskAdmission
from node.network import PROTOCOL
from node.renewal import Renewal
from node.roles.coordinator import EXPIRY, RENEWED_BEFORE, Coordinator
from node.roles.crowding import PER_NETWORK, network_of
from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.messages import encode
from protocol.units import PeerId
from tests.diloco.member.fleet import OPERATOR, tiny_genesis

DAY = 86400


def identity(number: int) -> Identity:
    return Identity.ephemeral(bytes([number]) * 32)


class Office:
    """A coordinator with its ledger and a clock that a test sets."""

    def __init__(self, folder: Path, **admission: Any) -> None:
        genesis = tiny_genesis()
        sections = genesis.sections.model_copy(update={"admission": AdmissionSection(**admission)})
        self.genesis: Genesis = genesis.model_copy(update={"sections": sections})
        self.rules = rules_of(self.genesis, seats(self.genesis.run_id, self.genesis.operator))
        self.ledger = Ledger(folder / "ledger.sqlite")
        self.now = 1_000_000_000.0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.network: Any = SimpleNamespace(
            banned=frozenset(), members={}, newcomers={}, me=identity(1).peer_id
        )
        self.folder = folder
        self.open()

    def open(self) -> None:
        """The coordinator's process starts."""
        self.coordinator = Coordinator(
            OPERATOR, self.genesis, self.rules, self.network, lambda: self.ledger, self.emit,
            lambda: self.now, self.folder / "invited.json",
        )  # fmt: skip

    def emit(self, kind: str, /, **fields: Any) -> None:
        self.events.append((kind, fields))

    def admit(self, number: int, held: bytes = b"") -> bytes:
        return self.coordinator.admit(identity(number).peer_id, ("trainer",), held)

    def read(self, raw: bytes, number: int) -> Admission:
        peer = identity(number).peer_id
        return read_admission(raw, self.genesis.run_id, self.genesis.operator, peer).message

    def begin(self, *numbers: int) -> Certified:
        """The run begins with these voters."""
        peers = {identity(number).peer_id: True for number in numbers}
        value = founding.make_start(self.rules, self.genesis.base, peers, {}, b"\1" * 32)
        data = encode(value)
        sealed = seal(OPERATOR, self.genesis.run_id, Start(value=data))
        start = Certified(value, data, value_digest(data), start=sealed.raw)
        self.ledger.append(start)
        return start


def test_an_invitation_lets_in_so_many_peers_until_it_expires_and_is_kept_as_a_hash(tmp_path: Path) -> None:
    office = Office(tmp_path, policy="invite")
    made, token = office.coordinator.tokens.make(office.now, uses=2, seconds=DAY)
    peers = [identity(number).peer_id for number in range(10, 15)]

    def enter(peer: PeerId, shown: str) -> None:
        office.coordinator.admit(peer, ("trainer",), b"", shown)

    def refused(peer: PeerId, shown: str) -> str:
        with pytest.raises(NodeError) as caught:
            enter(peer, shown)
        assert caught.value.code == Code.RND_NOT_ADMITTED
        return caught.value.sentence

    assert "needs an invitation" in refused(peers[0], "")
    assert "none of this run" in refused(peers[0], "x" + token)
    enter(peers[0], token)
    assert office.events[-1] == (
        "admission.given",
        {
            "peer": peers[0],
            "seat": True,
            "by": "invitation 1",
            "renewal": False,
            "expires_at": office.now + EXPIRY.total_seconds(),
        },
    )
    enter(peers[1], token)
    office.open()  # the process starts again: what was used stays used
    assert "used up" in refused(peers[2], token)
    enter(peers[0], "")  # whom it let in may come again without it
    kept = (tmp_path / "invitations.json").read_text()
    assert token not in kept and made.token_hash in kept

    second, other = office.coordinator.tokens.make(office.now, uses=5, seconds=DAY)
    office.now += DAY + 1
    assert "expired" in refused(peers[3], other)
    _, third = office.coordinator.tokens.make(office.now, uses=5, seconds=DAY)
    office.coordinator.tokens.end(second.number + 1, office.now)
    assert "expired" in refused(peers[4], third)


def test_damaged_invitations_let_nobody_in_by_guess(tmp_path: Path) -> None:
    (tmp_path / "invitations.json").write_text('[{"number": 1')
    with pytest.raises(NodeError) as caught:
        Office(tmp_path, policy="invite")
    assert caught.value.code == Code.STO_CORRUPT


@pytest.mark.parametrize(("uses", "seconds"), [(0, 10.0), (10**6, 10.0), (1, 0.0), (1, 1e9)])
def test_invitations_without_bounds_are_refused(tmp_path: Path, uses: int, seconds: float) -> None:
    with pytest.raises(NodeError):
        Office(tmp_path).coordinator.tokens.make(0.0, uses=uses, seconds=seconds)


def test_of_one_network_so_many_newcomers_are_admitted_in_an_hour_and_the_next_is_told_when(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)

    def come(number: int, seen: str) -> None:
        peer = Identity.ephemeral(number.to_bytes(32, "big")).peer_id
        office.network.newcomers[peer] = SimpleNamespace(seen=seen, host="")
        office.coordinator.admit(peer, ("trainer",))

    for number in range(PER_NETWORK):
        come(1000 + number, f"8.8.8.{number}")
        office.now += 1
    with pytest.raises(NodeError) as caught:
        come(2000, "8.8.8.200")
    assert "8.8.8.0/24" in caught.value.sentence and "place 1 of 1" in caught.value.sentence
    assert "59 min" in caught.value.sentence
    with pytest.raises(NodeError, match="place 2 of 2"):
        come(2002, "8.8.8.201")
    come(2001, "9.9.9.9")
    for number in range(PER_NETWORK + 1):
        come(3000 + number, "192.168.0.7")  # private networks are one's own
    office.now += 3600 - PER_NETWORK
    come(2002, "8.8.8.201")  # who stopped asking has left the line
    with pytest.raises(NodeError, match="place 1 of 1"):
        come(2003, "8.8.8.203")


def test_who_is_not_let_in_takes_nobodys_place_in_the_line(tmp_path: Path) -> None:
    office = Office(tmp_path, policy="invite")
    for number in range(PER_NETWORK + 1):
        peer = identity(100 + number).peer_id
        office.network.newcomers[peer] = SimpleNamespace(seen="8.8.8.8", host="")
        with pytest.raises(NodeError, match="invitation"):
            office.coordinator.admit(peer, ("trainer",))
    peer = identity(9).peer_id
    office.network.newcomers[peer] = SimpleNamespace(seen="8.8.8.8", host="")
    office.coordinator.invite(peer)
    assert office.coordinator.admit(peer, ("trainer",))


def test_networks_are_24_bits_of_an_old_address_and_48_of_a_new_one() -> None:
    assert network_of("8.8.8.8") == "8.8.8.0/24" and network_of("::ffff:8.8.8.8") == "8.8.8.0/24"
    assert network_of("2a00:1450:4001::1") == "2a00:1450:4001::/48"
    assert network_of("127.0.0.1") == network_of("nowhere.example") == network_of("") == ""


@pytest.mark.failure_mode(35)
def test_in_an_open_run_identities_that_come_later_have_no_seat(tmp_path: Path) -> None:
    office = Office(tmp_path)
    founders = [office.read(office.admit(number), number) for number in (1, 2, 3)]
    assert all(admission.seat for admission in founders)
    office.begin(1, 2, 3)
    later = [office.read(office.admit(number), number) for number in range(10, 60)]
    assert not any(admission.seat for admission in later)


def test_where_the_operator_says_who_comes_later_ones_have_a_seat_as_long_as_there_are_seats(
    tmp_path: Path,
) -> None:
    allow = [identity(number).peer_id for number in range(1, 6)]
    office = Office(tmp_path, policy="allowlist", allow=allow, seats=4)
    office.admit(1)
    office.begin(1)
    assert [office.read(office.admit(number), number).seat for number in (2, 3, 4, 5)] == [True] * 3 + [False]
    with pytest.raises(NodeError) as refused:
        office.admit(6)
    assert refused.value.code == Code.RND_NOT_ADMITTED


def test_a_voter_that_comes_back_without_its_data_directory_keeps_its_seat(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.begin(1, 2)
    office.open()
    assert office.read(office.admit(2), 2).seat and not office.read(office.admit(3), 3).seat


def test_an_admission_is_renewed_in_its_second_half_with_a_newer_anchor_and_the_same_seat(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    first = office.admit(2)
    assert office.read(first, 2).anchor_value == b""
    start = office.begin(1)
    office.open()  # it remembers nothing; what it signed proves itself
    assert office.admit(2, first) == first, "it lasts long enough"
    office.now += (EXPIRY - RENEWED_BEFORE).total_seconds() + 1
    second = office.read(office.admit(2, first), 2)
    assert second.seat and second.expires_at == int(office.now + EXPIRY.total_seconds())
    assert (second.anchor_epoch, second.anchor_round, second.anchor_value) == (0, -1, start.digest)
    late = office.admit(3)
    assert not office.read(late, 3).seat
    office.now += 40 * DAY
    assert not office.read(office.admit(3, late), 3).seat, "no seat comes of asking again"


def test_an_admission_of_somebody_else_renews_nothing(tmp_path: Path) -> None:
    office = Office(tmp_path)
    first = office.admit(1)
    office.begin(1)
    office.open()
    assert not office.read(office.admit(5, first), 5).seat
    assert not office.read(office.admit(6, b"no admission"), 6).seat


def test_who_is_banned_gets_no_renewal(tmp_path: Path) -> None:
    office = Office(tmp_path)
    first = office.admit(2)
    office.network.banned = frozenset([identity(2).peer_id])
    with pytest.raises(NodeError) as refused:
        office.admit(2, first)
    assert refused.value.code == Code.RND_BANNED


class Node:
    """A member's node as far as renewing goes; its questions reach the coordinator's handler."""

    def __init__(self, office: Office, number: int, folder: Path) -> None:
        self.office, self.me, self.roles = office, identity(number).peer_id, ("trainer",)
        self.members = {office.network.me: SimpleNamespace(roles=("coordinator",))}
        self.endpoint = SimpleNamespace(request=self.request)
        self.reachable = True
        self.shown: list[bytes] = []
        self.took: list[bytes] = []
        network: Any = self
        self.renewal = Renewal(network, office.genesis, None, folder, office.emit, self.took.append)

    def now(self) -> float:
        return self.office.now

    async def request(self, peer: PeerId, question: AskAdmission) -> Any:
        if not self.reachable:
            raise NodeError(Code.NET_UNREACHABLE, "The coordinator is dead.", peer=peer)
        assert question.protocol == PROTOCOL
        context: Any = SimpleNamespace(sender=self.me)
        return await self.office.coordinator.on_ask_admission(question, context)

    async def readmitted(self, admission: bytes) -> None:
        self.shown.append(admission)


async def test_a_node_renews_its_admission_when_it_is_due_and_a_coordinator_can_be_reached(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    node = Node(office, 2, tmp_path)
    first = office.admit(2)
    assert await node.renewal.renew(first) == first and not node.took
    office.now += (EXPIRY - RENEWED_BEFORE).total_seconds() + 1
    node.reachable = False
    assert await node.renewal.renew(first) == first and not node.took
    node.reachable = True
    second = await node.renewal.renew(first)
    assert second != first and node.took == node.shown == [second]
    assert (tmp_path / "admission.bin").read_bytes() == second
    assert office.read(second, 2).expires_at > office.read(first, 2).expires_at
    assert await node.renewal.renew(second) == second and node.took == [second]


def test_who_makes_rollouts_or_judges_them_has_no_seat_and_no_part_in_rounds(tmp_path: Path) -> None:
    office = Office(tmp_path)
    judge = identity(7).peer_id
    sections = office.genesis.sections.model_copy(update={"rl": {"validators": [judge]}})
    office.genesis = office.genesis.model_copy(update={"sections": sections})
    office.open()
    seat_of = seats(office.genesis.run_id, office.genesis.operator)
    for number, role in ((6, "rollout"), (7, "validator")):
        raw = office.coordinator.admit(identity(number).peer_id, (role,))
        assert office.read(raw, number).roles == (role,) and not office.read(raw, number).seat
        assert seat_of(raw, identity(number).peer_id) is None
    trainer = office.admit(2)
    assert office.read(trainer, 2).seat and seat_of(trainer, identity(2).peer_id) is not None


def test_nobody_is_admitted_as_a_validator_whom_the_run_does_not_name(tmp_path: Path) -> None:
    office = Office(tmp_path)
    with pytest.raises(NodeError, match="not among the run's validators") as refused:
        office.coordinator.admit(identity(7).peer_id, ("validator",))
    assert refused.value.code is Code.RND_NOT_ADMITTED


def test_rollout_workers_take_no_seats_from_trainers(tmp_path: Path) -> None:
    office = Office(tmp_path, seats=2)
    for number in range(3, 9):
        office.coordinator.admit(identity(number).peer_id, ("rollout",))
        office.network.members[identity(number).peer_id] = SimpleNamespace(roles=("rollout",))
    assert office.read(office.admit(1), 1).seat and office.read(office.admit(2), 2).seat
    assert not office.read(office.admit(10), 10).seat


async def test_who_has_another_version_than_the_run_takes_is_told_which_and_a_member_goes_on(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, versions=">=0.2,<0.4")
    peer = identity(2).peer_id

    async def ask(software: str, held: bytes = b"") -> bytes:
        question = AskAdmission(protocol=PROTOCOL, software=software, roles=("trainer",), admission=held)
        context: Any = SimpleNamespace(sender=peer)
        return bytes((await office.coordinator.on_ask_admission(question, context)).admission)

    for software in ("0.1.9", "0.4.0", "nonsense", ""):
        with pytest.raises(NodeError) as refused:
            await ask(software)
        assert refused.value.code == Code.NET_VERSION and ">=0.2,<0.4" in refused.value.sentence
    held = await ask("0.3.1.dev2")
    assert await ask("0.1.9", held) == held
    with pytest.raises(ValueError, match="versions"):
        AdmissionSection(versions="new ones")
