import pytest

from protocol.directory.addresses import (
    announce_multiaddr,
    check_peer_address,
    is_loopback,
    listen_multiaddr,
    peer_in,
    resolved,
    without_peer,
)
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.units import Address

PEER = Identity.ephemeral(b"a" * 32).peer_id


@pytest.mark.parametrize(
    "address",
    [
        "/ip4/10.0.0.1/tcp/4001",
        "/ip6/::1/tcp/4001",
        "/dns4/example.org/tcp/4001",
        "/ip4/10.0.0.1/udp/4001/quic-v1",
    ],
)
def test_a_peers_address_is_taken_apart(address: str) -> None:
    whole = check_peer_address(f"{address}/p2p/{PEER}")
    assert (without_peer(whole), peer_in(whole)) == (address, PEER)


@pytest.mark.parametrize(
    "address",
    [
        "", "10.0.0.1:4001", PEER, "/ip4/10.0.0.1/tcp/4001", f"/ip4/10.0.0.1/tcp/70000/p2p/{PEER}",
        f"/ip4/10.0.0.1/p2p/{PEER}", f"/ip4/10.0.0.300/tcp/1/p2p/{PEER}",
        "/ip4/10.0.0.1/tcp/1/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        f"/ip4/10.0.0.1/tcp/1/p2p/{PEER},/ip4/10.0.0.2/tcp/1/p2p/{PEER}", f"/ip4/10.0.0.1 /tcp/1/p2p/{PEER}",
        f"/ip4/10.0.0.1/tcp/1{'/' * 200}p2p/{PEER}", f"/ip4/10.0.0.1/tcp/1{'/a' * 20_000}",
    ],
)  # fmt: skip
def test_what_is_no_peers_address_is_refused_with_the_form(address: str) -> None:
    with pytest.raises(NodeError) as caught:
        check_peer_address(address)
    assert caught.value.code is Code.CFG_BAD_VALUE
    assert "/ip4/" in caught.value.fix


def test_an_address_to_listen_on() -> None:
    assert listen_multiaddr(Address("127.0.0.1", 0)) == "/ip4/127.0.0.1/tcp/0"
    assert listen_multiaddr(Address("::", 9)) == "/ip6/::/tcp/9"
    for host, port in (("example.org", 1), ("127.0.0.1", 65536), ("127.0.0.1", -1)):
        with pytest.raises(NodeError):
            listen_multiaddr(Address(host, port))


@pytest.mark.parametrize(
    ("announce", "multiaddr"),
    [
        ("203.0.113.7", "/ip4/203.0.113.7/tcp/5"),
        ("203.0.113.7:80", "/ip4/203.0.113.7/tcp/80"),
        ("[2001:db8::1]:80", "/ip6/2001:db8::1/tcp/80"),
        ("node.example.org:80", "/dns4/node.example.org/tcp/80"),
        ("/ip4/203.0.113.7/udp/80/quic-v1", "/ip4/203.0.113.7/udp/80/quic-v1"),
    ],
)
def test_an_address_to_announce(announce: str, multiaddr: str) -> None:
    assert announce_multiaddr(announce, Address("0.0.0.0", 5)) == multiaddr


@pytest.mark.parametrize(
    "announce", ["203.0.113.7", "", "a b", "host:99999", "/ip4/203.0.113.7", "/ip4/203.0.113.7/tcp/0"]
)
def test_an_address_that_cannot_be_announced(announce: str) -> None:
    with pytest.raises(NodeError) as caught:
        announce_multiaddr(announce, Address("0.0.0.0", 0))
    assert caught.value.code is Code.CFG_BAD_VALUE


def test_loopback_is_known() -> None:
    assert (
        is_loopback("/ip4/127.0.0.1/tcp/1")
        and is_loopback("/ip6/::1/tcp/1")
        and is_loopback("/dns4/localhost/tcp/1")
    )
    assert not is_loopback("/ip4/0.0.0.0/tcp/1") and not is_loopback("/dns4/example.org/tcp/1")


async def test_names_become_addresses() -> None:
    assert await resolved("/dns4/localhost/tcp/7") == ["/ip4/127.0.0.1/tcp/7"]
    assert await resolved("/ip4/10.0.0.1/tcp/7") == ["/ip4/10.0.0.1/tcp/7"]
    with pytest.raises(OSError):
        await resolved("/dns4/nowhere.invalid/tcp/7")
