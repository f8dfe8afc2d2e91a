"""Whom a node learns from the directory's shelves, and what it forgets."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from diloco.member.admission import Admission, admit
from node import sightings
from node.network import Network
from protocol import identity
from protocol.directory import Directory, PeerRecord
from protocol.envelope import Sealed, seal
from protocol.identity import Identity
from protocol.paths.tunnel import Dialling
from protocol.tls import make_certificate
from protocol.units import Address, PeerId, RunId
from tests.own import open_files

OPERATOR = Identity.ephemeral()
RUN = RunId("5e" * 32)
NOW = 1e6


class NoStreams:
    """Opens no stream to anybody."""

    async def open(self, peer: PeerId, name: str) -> Any:
        raise OSError("no reservation")

    async def serve(self, name: str, handler: Any) -> None:
        pass


class Shelves:
    """A directory whose records the test puts there; its tunnels are real ports of this process."""

    clock_warning = None

    def __init__(self) -> None:
        self.members: list[Sealed[PeerRecord]] = []
        self.newcomers: list[Sealed[PeerRecord]] = []
        self.dialling = Dialling(NoStreams(), lambda *_: None, lambda *_: None)
        self.tunnel, self.forget_tunnel = self.dialling.port, self.dialling.forget

    def now(self) -> float:
        return NOW

    async def records(self, shelf: str, **_: Any) -> tuple[Sealed[PeerRecord], ...]:
        return tuple(getattr(self, shelf))


@pytest.fixture
async def shelves() -> AsyncIterator[Shelves]:
    made = Shelves()
    yield made
    await made.dialling.stop()


def a_network(folder: Path) -> Network:
    return Network(
        Identity.ephemeral(), folder, listen=Address("127.0.0.1", 0), directory_port=0, announce="", upload=None,
        roles=("trainer",), emit=lambda kind, /, **fields: None, gossip_port=None,
    )  # fmt: skip


@pytest.fixture
def node(tmp_path: Path, shelves: Shelves) -> Network:
    """A node of the run, whose directory has the test's shelves."""
    made = a_network(tmp_path)
    directory: Any = shelves
    made.directory = directory
    made.belong_to(RUN, OPERATOR.peer_id)
    return made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is missing at one look is gone."""
    monkeypatch.setattr(sightings, "NEWCOMER_PATIENCE", timedelta(0))
    monkeypatch.setattr(sightings, "MEMBER_PATIENCE", timedelta(0))


def a_record(
    who: Identity | None = None,
    *,
    member: bool = False,
    reach: str = "tunnel",
    now: float = NOW,
    expires_at: int = 0,
) -> Sealed[PeerRecord]:
    who = who or Identity.ephemeral()
    said = PeerRecord(
        peer=who.peer_id, host="127.0.0.1", port=4000, certificate_pem=make_certificate(who.peer_id).certificate_pem,
        roles=("trainer",), boot=b"b" * 16, issued_at=now, expires_at=now + 240, reach=reach,
    )  # fmt: skip
    if not member:
        return seal(who, None, said)
    given = Admission(peer=who.peer_id, roles=("trainer",), seat=True, expires_at=expires_at)
    admission = admit(OPERATOR, RUN, given)
    return seal(who, RUN, replace(said, run=RUN, admission=admission))


@pytest.mark.usefixtures("impatient")
async def test_what_newcomers_leave_behind_is_forgotten(node: Network, shelves: Shelves) -> None:
    before = open_files()
    for _ in range(3):
        shelves.newcomers = [a_record() for _ in range(20)]
        await node.look()
        assert set(node.trust.known()) == {record.sender for record in shelves.newcomers}
        assert len(open_files() - before) == 40, "a port for control and one for bulk"
    shelves.newcomers = []
    await node.look()
    assert node.trust.known() == () and node.trust.pem_bundle() == b""
    assert not open_files() - before


async def test_a_node_knows_only_so_many_newcomers(node: Network, shelves: Shelves) -> None:
    before = open_files()
    shelves.newcomers = [a_record() for _ in range(sightings.MOST_NEWCOMERS)]
    known = {record.sender for record in shelves.newcomers}
    await node.look()
    assert set(node.trust.known()) == known
    member = a_record(member=True)
    shelves.members = [member]
    shelves.newcomers = [a_record() for _ in range(10)] + shelves.newcomers
    await node.look()
    assert set(node.trust.known()) == known | {member.sender}, "a member always has a place"
    assert len(open_files() - before) == 2 * sightings.MOST_NEWCOMERS + 2


async def test_a_newcomer_is_known_while_it_changes_shelves(node: Network, shelves: Shelves) -> None:
    who = Identity.ephemeral()
    shelves.newcomers = [a_record(who)]
    await node.look()
    address = node.trust.addresses(who.peer_id)
    shelves.newcomers = []
    await node.look()
    assert node.trust.addresses(who.peer_id) == address
    shelves.members = [a_record(who, member=True)]
    await node.look()
    assert node.trust.addresses(who.peer_id) == address, "the tunnel is the same"


@pytest.mark.usefixtures("impatient")
async def test_former_members_are_forgotten(node: Network, shelves: Shelves) -> None:
    before = open_files()
    for _ in range(3):
        shelves.members = [a_record(member=True) for _ in range(20)]
        await node.look()
        assert set(node.trust.known()) == {record.sender for record in shelves.members}
        assert len(open_files() - before) == 40
    shelves.members = []
    await node.look()
    assert node.trust.known() == () and node.trust.pem_bundle() == b""
    assert not open_files() - before


async def test_a_members_record_may_be_missing_for_a_while(
    node: Network, shelves: Shelves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sightings, "NEWCOMER_PATIENCE", timedelta(0))
    who = Identity.ephemeral()
    shelves.members = [a_record(who, member=True)]
    await node.look()
    shelves.members = []
    await node.look()
    assert node.trust.known() == (who.peer_id,)


@pytest.mark.usefixtures("impatient")
async def test_who_takes_part_is_not_forgotten_while_its_record_is_missing(
    node: Network, shelves: Shelves
) -> None:
    who = Identity.ephemeral()
    shelves.members = [a_record(who, member=True)]
    await node.look()
    node.taking_part = frozenset({who.peer_id})
    shelves.members = []
    for shown in ([], [a_record(who)], []):
        shelves.newcomers = shown
        await node.look()
        assert node.trust.known() == (who.peer_id,)
    node.taking_part = frozenset()
    await node.look()
    assert node.trust.known() == ()


async def test_the_signature_of_an_admission_is_verified_once(
    node: Network, shelves: Shelves, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[bytes] = []

    def counted(signed: bytes, key: bytes) -> bytes:
        opened.append(signed)
        return open_signed(signed, key)

    open_signed = identity.crypto_sign_open
    monkeypatch.setattr(identity, "crypto_sign_open", counted)
    member, forger, who = a_record(member=True), Identity.ephemeral(), Identity.ephemeral()
    forged = admit(forger, RUN, Admission(peer=who.peer_id, roles=("trainer",), seat=True))
    bad = seal(who, RUN, replace(member.message, peer=who.peer_id, admission=forged))
    shelves.members = [member, bad]
    for _ in range(3):
        await node.look()
        assert node.peers() == [member.sender] and len(opened) == 2
    assert node.given_roles(member.sender) == ("trainer",) and len(opened) == 2


@pytest.mark.usefixtures("impatient")
async def test_an_expired_admission_makes_a_newcomer_of_who_takes_no_part(
    node: Network, shelves: Shelves
) -> None:
    inside, outside, lasting = (Identity.ephemeral() for _ in range(3))
    expired = int(node.now()) - 3600
    shelves.members = [
        a_record(inside, member=True, expires_at=expired),
        a_record(outside, member=True, expires_at=expired),
        a_record(lasting, member=True, expires_at=expired + 7200),
    ]
    everyone = {inside.peer_id, outside.peer_id, lasting.peer_id}
    await node.look()
    assert set(node.peers()) == everyone, "who takes part is not known yet"
    node.taking_part = frozenset({inside.peer_id})
    await node.look()
    assert set(node.peers()) == {inside.peer_id, lasting.peer_id}
    assert set(node.trust.known()) == everyone, "it can ask for another admission"
    assert not node._belongs(outside.peer_id, "member")
    shelves.members = [
        shelves.members[0],
        *(a_record(member=True, expires_at=expired) for _ in range(sightings.MOST_NEWCOMERS + 5)),
    ]
    await node.look()
    await node.look()
    assert inside.peer_id in node.trust.known()
    assert len(node.trust.known()) <= sightings.MOST_NEWCOMERS + 2, "no more of them than of newcomers"


@pytest.mark.usefixtures("impatient")
async def test_a_banned_peer_is_refused_after_it_was_forgotten(node: Network, shelves: Shelves) -> None:
    who = Identity.ephemeral()
    shelves.members = [a_record(who, member=True)]
    await node.look()
    assert node._belongs(who.peer_id, "member")
    node.banned, node.taking_part = frozenset({who.peer_id}), frozenset()
    assert not node._belongs(who.peer_id, "member")
    shelves.members = []
    await node.look()
    assert node.trust.known() == ()
    shelves.members = [a_record(who, member=True)]
    await node.look()
    assert not node._belongs(who.peer_id, "member") and node.peers() == []


@pytest.mark.usefixtures("impatient")
async def test_nobody_is_forgotten_while_a_new_directory_knows_nobody(
    node: Network, shelves: Shelves
) -> None:
    shelves.newcomers = [a_record()]
    await node.look()
    (known,) = node.trust.known()
    node._remember_until = asyncio.get_running_loop().time() + 3600
    shelves.newcomers = []
    await node.look()
    assert node.trust.known() == (known,)
    node._remember_until = 0.0
    await node.look()
    assert node.trust.known() == ()


@pytest.mark.usefixtures("impatient")
async def test_who_posed_as_a_member_of_another_run_is_forgotten_once_the_run_is_known(
    tmp_path: Path, shelves: Shelves
) -> None:
    node = a_network(tmp_path)
    directory: Any = shelves
    node.directory = directory
    true, false = Identity.ephemeral(), Identity.ephemeral()
    wrong = replace(a_record(false).message, run=RunId("ff" * 32))
    shelves.members = [a_record(true, member=True), seal(false, RunId("ff" * 32), wrong)]
    await node.look()
    assert set(node.trust.known()) == {true.peer_id, false.peer_id}
    node.belong_to(RUN, OPERATOR.peer_id)
    await node.look()
    assert node.trust.known() == (true.peer_id,)


@pytest.mark.usefixtures("impatient")
async def test_a_certificate_that_is_none_leaves_no_port_behind(node: Network, shelves: Shelves) -> None:
    before, who = open_files(), Identity.ephemeral()
    shelves.newcomers = [seal(who, None, replace(a_record(who).message, certificate_pem=b"none"))]
    await node.look()
    assert node.trust.known() == ()
    shelves.newcomers = []
    await node.look()
    assert not open_files() - before


async def test_a_peer_that_becomes_reachable_needs_its_ports_no_longer(
    node: Network, shelves: Shelves
) -> None:
    before, who = open_files(), Identity.ephemeral()
    shelves.members = [a_record(who, member=True)]
    await node.look()
    assert len(open_files() - before) == 2
    shelves.members = [a_record(who, member=True, reach="direct")]
    await node.look()
    assert node.trust.addresses(who.peer_id) == (Address("127.0.0.1", 4000),)
    assert not open_files() - before


async def test_a_newcomers_tunnel_closes_in_the_directory_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, who = a_network(tmp_path / "node"), Identity.ephemeral()
    newcomer: Directory | None = None
    await node.start(())
    try:
        assert node.directory is not None
        node.belong_to(RUN, OPERATOR.peer_id)
        newcomer = await Directory.start(
            who, namespace="intellect-node", folder=tmp_path / "newcomer", bootstrap=node.directory.multiaddrs
        )
        await newcomer.publish(a_record(who, now=newcomer.now()), shelf="newcomers")
        await node.look()
        known = node.trust.find(who.peer_id)
        assert known is not None
        ports = (*known.addresses, *known.bulk)
        assert len(set(ports)) == 2
        for port in ports:
            (await asyncio.open_connection(*port))[1].close()
        await newcomer.withdraw()
        monkeypatch.setattr(sightings, "NEWCOMER_PATIENCE", timedelta(0))
        await node.look()
        assert node.trust.find(who.peer_id) is None
        for port in ports:
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*port)
        assert not node.ways._taken and not node.ways._said and not node.ways._tunnels
    finally:
        if newcomer is not None:
            await newcomer.stop()
        await node.stop()


@pytest.mark.usefixtures("impatient")
async def test_what_is_said_of_a_tunnel_ends_with_it(node: Network, shelves: Shelves) -> None:
    failed = {"event": "no-way", "plane": "control", "reason": "no reservation"}
    opened = {"event": "way", "plane": "bulk", "way": "relayed", "address": "/ip4/203.0.113.9/tcp/1"}
    shelves.newcomers = [a_record()]
    await node.look()
    (peer,) = node.trust.known()
    assert node.ways.to(peer) == ""
    for event in (failed, opened):
        node.ways.on_tunnel(event | {"peer": peer})
    assert node.ways.to(peer) == "relayed"
    held = (node.ways._taken, node.ways._said, node.ways._tunnels)
    assert all(held)
    shelves.newcomers = []
    await node.look()
    for event in (failed, opened):
        node.ways.on_tunnel(event | {"peer": peer})
    assert not any(held), "not even what is said too late is kept"


async def test_a_role_is_what_the_operator_gave_and_not_what_a_record_says(
    node: Network, shelves: Shelves
) -> None:
    liar, judge = Identity.ephemeral(), Identity.ephemeral()
    records = []
    for who, given in ((liar, ("rollout",)), (judge, ("validator",))):
        said = replace(a_record(who).message, roles=("validator",), run=RUN)
        admission = admit(OPERATOR, RUN, Admission(peer=who.peer_id, roles=given, seat=False))
        records.append(seal(who, RUN, replace(said, admission=admission)))
    shelves.members = records
    await node.look()
    assert node.given_roles(judge.peer_id) == ("validator",) and node.given_roles(liar.peer_id) == (
        "rollout",
    )
    audience = node.endpoint.audience
    assert audience(judge.peer_id, "role:validator") and not audience(liar.peer_id, "role:validator")
    assert not audience(liar.peer_id, "role:rollout"), "its record does not say so"
    assert not audience(judge.peer_id, "role:trainer")
    assert (
        audience(liar.peer_id, "member")
        and node.peers() == []
        and set(node.peers("validator")) == {liar.peer_id, judge.peer_id}
    )
