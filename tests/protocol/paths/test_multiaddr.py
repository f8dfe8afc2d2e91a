import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import NodeError
from protocol.identity import Identity
from protocol.paths.multiaddr import from_bytes, is_circuit, peer_bytes, peer_of, to_bytes, varint, varint_at

PEER = Identity.ephemeral(b"a" * 32).peer_id
OTHER = Identity.ephemeral(b"b" * 32).peer_id
CIRCUIT = f"/ip4/203.0.113.9/tcp/4001/p2p/{PEER}/p2p-circuit/p2p/{OTHER}"


@pytest.mark.parametrize(
    "address",
    [
        "/ip4/127.0.0.1/tcp/4001",
        "/ip6/2001:db8::1/udp/9/quic-v1",
        "/dns4/example.org/tcp/443",
        f"/ip4/127.0.0.1/tcp/1/p2p/{PEER}",
        CIRCUIT,
        "/unix/proc/self/fd/7",
    ],
)
def test_an_address_comes_back_as_it_was(address: str) -> None:
    assert from_bytes(to_bytes(address)) == address


def test_bytes_are_those_of_the_specification() -> None:
    assert to_bytes("/ip4/127.0.0.1/tcp/4001").hex() == "047f000001060fa1"
    assert to_bytes(f"/p2p/{PEER}")[:4].hex() == "a5032600", "a multihash of 38 bytes, not a CID"


@pytest.mark.parametrize(
    "address",
    [
        "/ip4/1.2.3.4/sctp/1",
        "/ip4/1.2.3",
        "/ip4/1.2.3.4/tcp/70000",
        "/ip4",
        "/tcp/x",
        "/tcp/+5",
        "/tcp/1_0",
        "/tcp/٣",
        "/tcp/" + "9" * 5000,
        f"/p2p/{PEER}x/p2p-circuit",
    ],
)
def test_what_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError):
        to_bytes(address)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        text = from_bytes(data)
    except (ValueError, NodeError):
        return
    assert text == "" or text.startswith("/")


@given(st.integers(0, 2**62))
def test_numbers_come_back(number: int) -> None:
    assert varint_at(b"x" + varint(number), 1) == (number, 1 + len(varint(number)))


def test_peers_and_circuits() -> None:
    assert peer_of(peer_bytes(PEER)) == PEER
    with pytest.raises(ValueError):
        peer_of(b"\x12\x20" + bytes(32))
    assert is_circuit(CIRCUIT) and not is_circuit(f"/ip4/203.0.113.9/tcp/4001/p2p/{PEER}")
