"""By which way a peer is dialled. Pure: what is known goes in, an ordered list of ways comes out."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from protocol.units import Address


class Reach(StrEnum):
    """How a node's data plane is to be dialled, as its record says."""

    DIRECT = "direct"
    """Anyone connects to its address."""
    TUNNEL = "tunnel"
    """It can only dial out; others come through a stream of its network helper."""


class Way(StrEnum):
    """The way that a connection takes."""

    DIRECT = "direct"
    """From machine to machine."""
    PUNCHED = "punched"
    """From machine to machine, through two routers that both sides opened at the same moment."""
    RELAYED = "relayed"
    """Through a third node."""


@dataclass(frozen=True)
class Seen:
    """What one peer saw of this node when it was asked.

    Attributes:
        by: The peer.
        host: The address that this node's connections come from.
        data: Why the data plane could not be called back, empty if it could.
        directory: The same for the directory's port.
        relay: Whether that peer is a relay.
    """

    by: str
    host: str
    data: str = ""
    directory: str = ""
    relay: bool = False


@dataclass(frozen=True)
class Standing:
    """Where a node stands towards others.

    Attributes:
        reach: How it is dialled.
        host: The host that others dial for ``DIRECT``, and that those behind the same router dial.
        seen: The address that others see its connections come from; empty if nobody told.
        sentence: Why, for people.
    """

    reach: Reach = Reach.DIRECT
    host: str = ""
    seen: str = ""
    sentence: str = ""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def stand(outward: str, announce: str, wanted: str, seen: Iterable[Seen]) -> Standing:
    """Where a node stands, from what it was told and what peers saw.

    One call-back that arrives is enough, since it cannot be a mistake; without any it takes a peer that tried.

    Args:
        outward: This machine's own address towards others.
        announce: The host that the operator says others dial; believed.
        wanted: ``auto``, or ``direct`` or ``relayed`` as the operator says.
        seen: What peers saw.
    """
    answers = tuple(seen)
    host = answers[0].host if answers else ""
    if wanted == "relayed":
        return Standing(Reach.TUNNEL, outward, host, "Others come through a relay, as the run file says.")
    if announce or wanted == "direct":
        said = "network.announce" if announce else "network.reach"
        return Standing(Reach.DIRECT, announce or outward, host, f"Others connect directly, as {said} says.")
    if is_loopback(outward):
        return Standing(Reach.DIRECT, outward, host, "This node listens for its own machine only.")
    for answer in answers:
        if not answer.data:
            sentence = f"{answer.by} called back to {answer.host}: others connect directly."
            return Standing(Reach.DIRECT, answer.host, answer.host, sentence)
    if not answers:
        return Standing(Reach.DIRECT, outward, "", "Nobody was there to call back.")
    first = answers[0]
    sentence = (
        f"{first.by} sees this node as {first.host} and cannot call back ({first.data}): a relay is used."
    )
    return Standing(Reach.TUNNEL, outward, first.host, sentence)


@dataclass(frozen=True)
class Offer:
    """What a peer's record says of the ways to it."""

    reach: str
    address: Address
    seen: str = ""


def candidates(mine: Standing, offer: Offer) -> tuple[Address | None, ...]:
    """The ways to a peer, best first: an address to connect to, or None for a tunnel.

    Two nodes that are seen from the same address stand behind the same router and try their own addresses first.
    """
    if offer.reach != Reach.TUNNEL:
        return (offer.address,)
    if offer.seen and offer.seen == mine.seen and not is_loopback(offer.address.host):
        return (offer.address, None)
    return (None,)
