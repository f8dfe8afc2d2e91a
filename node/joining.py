"""Coming into a run: its genesis, and this node's admission."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from diloco.genesis import Genesis
from diloco.member.admission import read_admission
from diloco.member.setting import Emit
from node.machine import software_version
from node.messages import AskAdmission, AskGenesis, GenesisPart
from node.network import PROTOCOL, Network
from node.roles.coordinator import Coordinator
from protocol.directory import PeerRecord
from protocol.errors import Code, NodeError
from protocol.files import read_whole, write_whole
from protocol.rpc import Endpoint
from protocol.units import PeerId

GENESIS_FILE = "genesis.json"
ADMISSION_FILE = "admission.bin"

_PATIENCE = timedelta(seconds=30)
_GENESIS_LIMIT = 32 * 2**20
_PART = 2**20  # bytes of a genesis in one message

_OUT_OF_REACH = (Code.NET_UNREACHABLE, Code.NET_TIMEOUT)
"""What a dead coordinator gives while its record is still there."""

Say = Callable[[str, str, str], None]
"""Says a phase, a reason and a sentence, in the event log and on the status socket."""


def check_way_in(folder: Path, join: tuple[str, ...]) -> None:
    """Make sure that there is a run to go on with or an address to join by, before anything is started.

    Raises:
        NodeError: ``CFG_USAGE``.
    """
    if not join and not (folder / GENESIS_FILE).exists():
        raise NodeError(
            Code.CFG_USAGE,
            f"{folder} holds no run yet.",
            fix="Join one with --join MULTIADDR, or begin one with `intellect-node init`.",
        )


def teller(emit: Emit) -> Say:
    """Tells phases of a node that is in no round yet."""

    def say(phase: str, reason: str, sentence: str) -> None:
        emit(
            "node.phase", phase=phase, reason=reason, sentence=sentence, until=None, missing=[], round=-1, attempt=0
        )  # fmt: skip

    return say


async def come_in(network: Network, folder: Path, join: tuple[str, ...], say: Say) -> Genesis:
    """Start the network and find the run, of which this node is from then on.

    Raises:
        NodeError: What the directory says, and as `find_run`.
    """
    say("starting", "directory", "Starting the directory by which peers find each other.")
    await network.start(join, resumes=(folder / GENESIS_FILE).exists())
    genesis = await find_run(network, folder, join, say)
    network.belong_to(genesis.run_id, genesis.operator)
    return genesis


async def find_run(network: Network, folder: Path, join: tuple[str, ...], say: Say) -> Genesis:
    """The run that this node takes part in: from its folder, or from the peer that ``--join`` names.

    The peer id in the address is what a contributor trusts; the genesis is believed because its hash is the run's id
    in that peer's signed record.

    Raises:
        NodeError: ``DIR_BOOTSTRAP`` when the peer is in no run,
            ``NET_VERSION``, ``CFG_GENESIS_INVALID``.
    """
    if (folder / GENESIS_FILE).exists():
        return read_genesis(folder)
    say("joining", "genesis", "Fetching the run's description from the peer that --join names.")
    trusted = tuple(PeerId(address.rsplit("/p2p/", 1)[1]) for address in join if "/p2p/" in address)
    await network.publish()
    record = await _wait_for(network, trusted, _PATIENCE)
    data = await _fetch_genesis(network.endpoint, record.peer, record.run, _PATIENCE)
    genesis = Genesis.parse(data)
    if genesis.run_id != record.run:
        raise NodeError(
            Code.CFG_GENESIS_INVALID, f"{record.peer} sent another genesis than its record names."
        )
    write_whole(folder / GENESIS_FILE, [data])
    return genesis


async def _wait_for(network: Network, peers: tuple[PeerId, ...], patience: timedelta) -> PeerRecord:
    """The record of one of the peers that the operator of this node trusts to show the run.

    Raises:
        NodeError: ``E-DIR-002`` when none of them appears among the members; ``E-NET-009`` for another version.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + patience.total_seconds()
    while True:
        await network.look()
        for peer in peers:
            record = network.members.get(peer)
            if record is None:
                continue
            if record.protocol != PROTOCOL:
                raise NodeError(
                    Code.NET_VERSION,
                    f"The run speaks protocol {record.protocol} (package {record.software}); this node "
                    f"speaks {PROTOCOL} (package {software_version()}).",
                    fix=f"Install intellect-node {record.software}.",
                    peer=peer,
                )
            return record
        if loop.time() > end:
            raise NodeError(
                Code.DIR_BOOTSTRAP,
                f"{peers[0]} answers in the directory but has no record as a member of any run.",
                fix="Give --join the address of a node that takes part in the run.",
            )
        await asyncio.sleep(0.5)


async def _fetch_genesis(endpoint: Endpoint, peer: PeerId, run: str, patience: timedelta) -> bytes:
    """The genesis of a run, from a member; the caller checks its hash.

    Raises:
        NodeError: The peer did not answer for ``patience``, or sent too much.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + patience.total_seconds()
    while True:
        data = bytearray()
        try:
            question = AskGenesis(run=run)
            async with aclosing(endpoint.stream(peer, question, progress=timedelta(seconds=10))) as parts:
                async for part in parts:
                    data += part.data
                    if len(data) > _GENESIS_LIMIT:
                        raise NodeError(
                            Code.CFG_GENESIS_INVALID, "The genesis that came is too large.", peer=peer
                        )
            return bytes(data)
        except NodeError as error:
            # until the peer has seen this node's record it does not know its certificate
            if not error.retriable or loop.time() > end:
                raise
            await asyncio.sleep(0.5)


def read_genesis(folder: Path) -> Genesis:
    """The genesis in a node's folder.

    Raises:
        NodeError: ``CFG_GENESIS_INVALID`` when it is damaged, ``STO_UNWRITABLE`` when it cannot be read.
    """
    path = folder / GENESIS_FILE
    try:
        return Genesis.parse(read_whole(path))
    except NodeError as error:
        if error.code != Code.CFG_GENESIS_INVALID:
            raise
        raise NodeError(
            error.code,
            f"{path} is damaged: {error.sentence}",
            fix="Copy it from another node of the run, or move it away and start this node with --join.",
        ) from error


def genesis_parts(genesis: Genesis | None, run: str) -> Iterator[GenesisPart]:
    """The genesis of a run in pieces.

    Raises:
        NodeError: ``NET_UNTRUSTED``: it is another run's.
    """
    if genesis is None or run != genesis.run_id:
        raise NodeError(Code.NET_UNTRUSTED, "This node does not take part in that run, or not yet.")
    data = genesis.to_bytes()
    for start in range(0, len(data), _PART):
        yield GenesisPart(data=data[start : start + _PART])


async def find_admission(
    network: Network,
    genesis: Genesis,
    coordinator: Coordinator | None,
    folder: Path,
    say: Say,
    emit: Emit,
    invitation: str = "",
) -> bytes:
    """This node's admission: from disk, from the coordinator on this node, or from one that has to be reached.

    Returns:
        Envelope bytes.

    Raises:
        NodeError: ``NET_VERSION`` when the run speaks another version. A policy that says no is asked again: the
            operator may change their mind.
    """
    path = folder / ADMISSION_FILE
    if path.exists():
        raw = read_whole(path)
        with suppress(NodeError):
            read_admission(raw, genesis.run_id, genesis.operator, network.me)
            return raw
    if coordinator is not None:
        raw = coordinator.admit(network.me, network.roles)
    else:
        raw = await _ask(network, genesis, say, emit, invitation)
    write_whole(path, [raw])
    return raw


@dataclass(frozen=True)
class Asked:
    """What coordinators answered.

    Attributes:
        admission: An admission of the run's operator for this node (envelope bytes); None where none gave one.
        refusal: Why not, where one said no.
    """

    admission: bytes | None = None
    refusal: str = ""


async def ask_coordinators(
    network: Network, genesis: Genesis, held: bytes = b"", invitation: str = ""
) -> Asked:
    """Ask the coordinators that are known now for an admission.

    Args:
        network: The node's network.
        genesis: The run.
        held: The admission that this node has.
        invitation: The token that it was given.

    Raises:
        NodeError: ``NET_VERSION`` when the run speaks another version.
    """
    question = AskAdmission(
        protocol=PROTOCOL,
        software=software_version(),
        roles=network.roles,
        admission=held,
        invitation=invitation,
    )
    refusal = ""
    for peer in [peer for peer, record in network.members.items() if "coordinator" in record.roles]:
        try:
            answer = await network.endpoint.request(peer, question)
            read_admission(answer.admission, genesis.run_id, genesis.operator, network.me)
            return Asked(admission=bytes(answer.admission))
        except NodeError as error:
            if error.code == Code.NET_VERSION:
                raise
            if error.code not in _OUT_OF_REACH:
                refusal = error.sentence
    return Asked(refusal=refusal)


async def _ask(network: Network, genesis: Genesis, say: Say, emit: Emit, invitation: str) -> bytes:
    await network.publish()
    said = ""
    while True:
        await network.look()
        asked = await ask_coordinators(network, genesis, invitation=invitation)
        if asked.admission is not None:
            given = read_admission(asked.admission, genesis.run_id, genesis.operator, network.me)
            emit("admission.received", seat=given.message.seat)
            return asked.admission
        why = asked.refusal or "no coordinator of the run can be reached."
        sentence = f"Waiting to be admitted: {why}"
        if sentence != said:
            said = sentence
            say("joining", "admission", sentence)
        await asyncio.sleep(0.5)
