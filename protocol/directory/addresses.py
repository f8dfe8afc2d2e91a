"""Multiaddrs as text: the few forms that a person writes and the directory uses.

Source of the format: https://github.com/multiformats/multiaddr.
"""

import asyncio
import errno
import ipaddress
import re
import socket

from protocol.errors import Code, NodeError
from protocol.identity import public_key_of
from protocol.units import Address

_PEER_ADDRESS = re.compile(
    r"/(ip4|ip6|dns|dns4|dns6)/([^/\s,]+)/(tcp|udp)/(\d{1,5})(/[^/\s,]+)*/p2p/([1-9A-Za-z]+)"
)
_FORM = "/ip4/203.0.113.7/tcp/4001/p2p/12D3KooW…"


def check_peer_address(address: str) -> str:
    """Returns a peer's address as it is.

    Raises:
        NodeError: ``E-CFG-003`` if it is not a multiaddr that ends with an Ed25519 peer id.
    """
    match = _PEER_ADDRESS.fullmatch(address)
    fix = f"Write it as {_FORM}; a running node shows its own with `intellect-node status`."
    if match is None or int(match[4]) > 65535:
        raise NodeError(Code.CFG_BAD_VALUE, f"{address[:200]!r} is not a peer's address.", fix=fix)
    try:
        public_key_of(match[6])
        if match[1] in ("ip4", "ip6"):
            (ipaddress.IPv4Address if match[1] == "ip4" else ipaddress.IPv6Address)(match[2])
    except (NodeError, ValueError) as error:
        raise NodeError(
            Code.CFG_BAD_VALUE, f"{address[:200]!r} is not a peer's address: {error}", fix=fix
        ) from error
    return address


def peer_in(address: str) -> str:
    """The peer id at the end of a peer's address."""
    return address.rpartition("/p2p/")[2]


def without_peer(address: str) -> str:
    """The address without the peer id at its end."""
    return address.rpartition("/p2p/")[0]


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches the address."""
    parts = address.split("/")
    if len(parts) < 3:
        return False
    if parts[1] in ("ip4", "ip6"):
        return ipaddress.ip_address(parts[2]).is_loopback
    return parts[2] == "localhost"


def listen_multiaddr(listen: Address) -> str:
    """The multiaddr of an IP address and TCP port to listen on.

    Raises:
        NodeError: ``E-CFG-003`` if the host is not an IP address or the port is none.
    """
    try:
        host = ipaddress.ip_address("127.0.0.1" if listen.host == "localhost" else listen.host)
    except ValueError as error:
        fix = "Use an address of this machine, or 0.0.0.0 for all of them."
        raise NodeError(
            Code.CFG_BAD_VALUE, f"{listen.host!r} is not an IP address to listen on.", fix=fix
        ) from error
    if not 0 <= listen.port <= 65535:
        fix = "Use 1 to 65535, or 0 for any free one."
        raise NodeError(Code.CFG_BAD_VALUE, f"{listen.port} is not a port.", fix=fix)
    return f"/ip{host.version}/{host}/tcp/{listen.port}"


def announce_multiaddr(announce: str, listen: Address) -> str:
    """The multiaddr that others are told, from ``host``, ``host:port`` or a multiaddr without a peer id.

    Raises:
        NodeError: ``E-CFG-003`` if it is none of these, or names no port while the port is chosen freely.
    """
    fix = "Write host:port, or a multiaddr such as /ip4/203.0.113.7/tcp/4001."
    if announce.startswith("/"):
        if not re.fullmatch(r"/(ip4|ip6|dns|dns4|dns6)/[^/\s,]+/(tcp|udp)/[1-9]\d{0,4}(/[^\s,]+)*", announce):
            raise NodeError(Code.CFG_BAD_VALUE, f"{announce!r} is not an address to announce.", fix=fix)
        return announce
    bracketed = re.fullmatch(r"\[([0-9a-fA-F:.]+)\](?::(\d{1,5}))?", announce)
    match = bracketed or re.fullmatch(r"([A-Za-z0-9.-]+)(?::(\d{1,5}))?", announce)
    port = int(match[2] or listen.port) if match is not None else 0
    if match is None or not 0 < port <= 65535:
        raise NodeError(Code.CFG_BAD_VALUE, f"{announce!r} names no host and port to announce.", fix=fix)
    try:
        host = ipaddress.ip_address(match[1])
    except ValueError:
        return f"/dns4/{match[1]}/tcp/{port}"
    return f"/ip{host.version}/{host}/tcp/{port}"


def check_port_free(listen: Address) -> None:
    """Sees whether a port can be had. The helper would not tell: it shares a port with whoever allows it.

    Raises:
        NodeError: ``E-NET-001`` if somebody listens there already, ``E-CFG-003`` if the address is not this machine's.
    """
    host = "127.0.0.1" if listen.host == "localhost" else listen.host
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # connections that are closing do not matter
        try:
            trial.bind((host, listen.port))
            trial.listen(1)
        except PermissionError as error:
            sentence = (
                f"The directory may not listen on port {listen.port}: ports below 1024 need a privilege."
            )
            raise NodeError(Code.NET_PORT_IN_USE, sentence) from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                sentence = f"The directory's port {listen.port} is taken by another program."
                raise NodeError(Code.NET_PORT_IN_USE, sentence) from error
            fix = "Use an address of this machine, or 0.0.0.0 for all of them."
            sentence = f"The directory cannot listen on {listen}: {error.strerror}."
            raise NodeError(Code.CFG_BAD_VALUE, sentence, fix=fix) from error


async def resolved(address: str) -> list[str]:
    """The address with its host name replaced by each of its IP addresses. Performs a name look-up.

    Raises:
        OSError: The name has no address.
    """
    parts = address.split("/")
    if parts[1] not in ("dns", "dns4", "dns6"):
        return [address]
    family = {"dns": socket.AF_UNSPEC, "dns4": socket.AF_INET, "dns6": socket.AF_INET6}[parts[1]]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(parts[2], None, family=family, type=socket.SOCK_STREAM)
    kinds = {socket.AF_INET: "ip4", socket.AF_INET6: "ip6"}
    hosts = dict.fromkeys((kinds[entry[0]], str(entry[4][0])) for entry in found if entry[0] in kinds)
    return ["/".join(["", kind, host, *parts[3:]]) for kind, host in hosts]
