"""An entry point for each decoder, for any fuzzer.

Bytes go in, and either they are refused in the way that is promised, or what they mean passes every check. Anything
else is a defect and raises.

A package with decoders of its own adds them with :func:`target`; ``make fuzz`` runs them all.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from protocol.errors import NodeError
from protocol.identity import Identity
from protocol.messages.example import example
from protocol.messages.registry import REGISTRY, Role
from protocol.messages.wire import decode, encode
from protocol.units import PeerId, RunId


@dataclass(frozen=True)
class Fuzzed:
    """A decoder to be fuzzed.

    Attributes:
        run: Takes any bytes; raises if the decoder does what it should not.
        seeds: Bytes to begin with, most of them valid.
    """

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


Load = Callable[[], Fuzzed]
"""Imports a decoder and makes its entry point; imports only then, so that a fuzzer can instrument what is imported."""

TARGETS: dict[str, Load] = {}
"""Entry points by name."""


def target(name: str) -> Callable[[Load], Load]:
    """Enters an entry point under a name."""

    def enter(load: Load) -> Load:
        if name in TARGETS:
            raise ValueError(f"two entry points are named {name!r}")
        TARGETS[name] = load
        return load

    return enter


def load_target(name: str) -> Fuzzed:
    """The entry point of a name; ``message:NAME`` is that of one message class.

    Raises:
        KeyError: There is none.
    """
    if name.startswith("message:"):
        return of_message(REGISTRY.find(name.removeprefix("message:")).cls)
    return TARGETS[name]()


# --- inputs -------------------------------------------------------------------------------------------------------

_NUMBERS = (0, 1, 127, 128, 255, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def mutated(seed: bytes, chance: Random) -> bytes:
    """The bytes with one to four random changes: what a fuzzer does, for where there is none."""
    data = bytearray(seed)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(data))
        match chance.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << chance.randrange(8)
            case 1 if data:
                data[at % len(data)] = chance.choice((0, 1, 127, 128, 255))
            case 2:
                del data[at : at + chance.randint(1, 8)]
            case 3:
                data[at:at] = chance.randbytes(chance.randint(1, 8))
            case 4:
                data[at:at] = _varint(chance.choice(_NUMBERS))
            case 5:
                data += data[at : at + 64]
            case _:
                del data[at:]
    return bytes(data)


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


# --- the protocol's decoders --------------------------------------------------------------------------------------

_ANA, _BEN = Identity.ephemeral(b"a" * 32), Identity.ephemeral(b"b" * 32)
_RUN = RunId("11" * 32)


def _anybody(peer: PeerId, data: bytes, signature: bytes) -> bool:
    return True


def of_message(cls: type[Any]) -> Fuzzed:
    """The decoder of one message class: what it reads, it writes, and reads the same again."""

    def run(data: bytes) -> None:
        try:
            message = decode(cls, data)
            written = encode(message)  # may be larger: defaults are written out
        except NodeError:
            return
        again = decode(cls, written)
        assert encode(again) == written, "what was written is read as something else"
        hash(again)

    return Fuzzed(run, (encode(example(cls)), b""))


@target("messages")
def _messages() -> Fuzzed:
    """Every message class; the first byte says which."""
    specs = [spec for spec in REGISTRY.all() if spec.role is not Role.PART]
    entries = [of_message(spec.cls) for spec in specs]
    seeds = tuple(
        bytes((number % 256,)) + seed for number, entry in enumerate(entries) for seed in entry.seeds
    )

    def run(data: bytes) -> None:
        if data:
            for entry in entries[data[0] :: 256]:
                entry.run(data[1:])

    return Fuzzed(run, seeds)


@target("header")
def _header() -> Fuzzed:
    from protocol.envelope import Header

    return of_message(Header)


@target("envelope")
def _envelope() -> Fuzzed:
    """Envelopes behind a signature that holds, so that what comes after it is reached, too."""
    from protocol.envelope import seal, unseal

    def run(data: bytes) -> None:
        for verifier in (_anybody, None):
            try:
                opened: Any = (
                    unseal(data, run=None) if verifier is None else unseal(data, run=None, verifier=verifier)
                )
            except NodeError:
                continue
            assert opened.raw == data, "an envelope is not the bytes that it came as"

    seeds = [
        seal(_ANA, _RUN, example(spec.cls), recipient=_BEN.peer_id, boot=bytes(16), sequence=1).raw
        for spec in REGISTRY.all()
        if spec.role is not Role.PART and spec.plane == "control"
    ]
    return Fuzzed(run, tuple(seeds))


@target("topic")
def _topic() -> Fuzzed:
    """What a neighbour brings of a topic."""
    from protocol.envelope import seal
    from protocol.gossip.judging import Judge, Judgement

    topics = [spec for spec in REGISTRY.all() if spec.role is Role.TOPIC]
    judge = Judge(_RUN, lambda peer, audience: True, verifier=_anybody)
    seeds = [seal(_ANA, _RUN, example(spec.cls), boot=bytes(16), sequence=1).raw for spec in topics]

    def run(data: bytes) -> None:
        for spec in topics:
            verdict = judge.judge(spec, data)
            assert (verdict.sealed is not None) is (verdict.judgement is Judgement.ACCEPT)

    return Fuzzed(run, tuple(seeds))


@target("gossip-host")
def _gossip_host() -> Fuzzed:
    """The certificate that a gossip host shows."""
    from protocol.gossip.sub_key import certify_host, node_of

    def run(data: bytes) -> None:
        try:
            node_of(data, host=_BEN.peer_id)
        except NodeError:
            return

    return Fuzzed(run, (certify_host(_ANA, _BEN, bytes(16)).raw,))


@target("directory-record")
def _directory_record() -> Fuzzed:
    """What the directory is given to keep: kept or not, never an error."""
    from protocol.directory.records import Guard, PeerRecord, dht_expiry
    from protocol.envelope import seal

    def run(data: bytes) -> None:
        guard = Guard({b"key": "members"}, lambda: 1000.0, verifier=_anybody)
        for expiry in (2000.0, 2600.0, float("nan")):
            assert guard.accepts(b"key", _ANA.peer_id, data, expiry) in (True, False)

    record = PeerRecord(
        peer=_ANA.peer_id, run=_RUN, host="192.0.2.1", port=1, issued_at=1000.0, expires_at=2000.0,
        multiaddrs=(f"/ip4/192.0.2.1/tcp/9/p2p/{_ANA.peer_id}",),
    )  # fmt: skip
    assert dht_expiry(record) == 2600.0
    return Fuzzed(run, (seal(_ANA, _RUN, record).raw,))


@target("directory-frames")
def _directory_frames() -> Fuzzed:
    """What the directory process says to its node."""
    from protocol.directory.frames import error_frame, error_of, read_frame
    from protocol.errors import Code
    from protocol.testing.virtual import VirtualLoop

    loop = VirtualLoop()

    def run(data: bytes) -> None:
        async def read() -> None:
            reader = asyncio.StreamReader()
            reader.feed_data(data)
            reader.feed_eof()
            while (frame := await read_frame(reader)) is not None:
                assert isinstance(frame, dict)

        try:
            loop.run_until_complete(read())
        except (ValueError, RecursionError):
            return

    error = error_of(error_frame(NodeError(Code.DIR_START, "It did not start.")))
    assert error.code is Code.DIR_START
    seeds = tuple(
        len(text).to_bytes(4) + text for text in (b"{}", b'{"event":"ready","multiaddrs":[]}', b"[[[[1]]]]")
    )
    return Fuzzed(run, seeds)


@target("certificate")
def _certificate() -> Fuzzed:
    """A certificate that a record holds."""
    from protocol.tls import check_certificate, make_certificate

    def run(data: bytes) -> None:
        try:
            again = check_certificate(_ANA.peer_id, data)
        except NodeError:
            return
        assert check_certificate(_ANA.peer_id, again) == again

    return Fuzzed(run, (make_certificate(_ANA.peer_id).certificate_pem,))


@target("texts")
def _texts() -> Fuzzed:
    """What a person or a record writes: sizes, rates, durations, peer ids, addresses."""
    from protocol.directory.addresses import check_peer_address
    from protocol.identity import public_key_of
    from protocol.units import Bytes, Rate, bandwidth, duration

    readers: tuple[Callable[[str], Any], ...] = (
        Bytes.parse, Rate.parse, duration, bandwidth, public_key_of, check_peer_address,
    )  # fmt: skip

    def run(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        for read in readers:
            try:
                read(text)
            except (ValueError, NodeError):
                continue

    seeds: Iterable[str] = (
        "4 KiB", "10/s burst 20", "250 ms", "20 Mb/s", _ANA.peer_id, f"/ip4/192.0.2.1/tcp/9/p2p/{_ANA.peer_id}",
        f"/dns4/example.org/tcp/65535/p2p/{_ANA.peer_id}",
    )  # fmt: skip
    return Fuzzed(run, tuple(text.encode() for text in seeds))


@target("multiaddr")
def _multiaddr() -> Fuzzed:
    """The network helper's form of addresses."""
    from protocol.paths.multiaddr import from_bytes, to_bytes

    def run(data: bytes) -> None:
        try:
            text = from_bytes(data)
        except (ValueError, NodeError):
            return
        try:
            again = from_bytes(to_bytes(text))
        except (ValueError, NodeError):
            return  # a name may hold what separates the parts of a text
        assert len(again) <= len(text) + 64

    circuit = f"/ip4/192.0.2.1/tcp/9/p2p/{_ANA.peer_id}/p2p-circuit/p2p/{_BEN.peer_id}"
    return Fuzzed(
        run, (to_bytes(circuit), to_bytes("/dns4/example.org/udp/53/quic-v1"), to_bytes("/ip6/::1/tcp/1"))
    )
