"""What gossip itself says: whose host one is, and what a late subscriber missed."""

from protocol.gossip.limits import FRAME, MAX_TOPICS
from protocol.limits import MAX_NAME
from protocol.messages import field, message, part, request


@message("gossip.host", version=1, max_bytes="512 B", rate="1/s", audience="anyone")
class HostCertificate:
    """A node's word that a libp2p host is its own; sealed by the node's key, it makes the host's key a sub-key.

    Attributes:
        host: The host's peer id.
        boot: Boot number of the node's process that the host belongs to.
        proof: The host's own signature over node and boot, so that nobody claims another's host.
    """

    host: str = field(1, max_bytes=64)
    boot: bytes = field(2, max_bytes=16)
    proof: bytes = field(3, max_bytes=64)


@part
class Kept:
    """A message of a topic that is kept for late subscribers.

    Attributes:
        topic: The topic's name.
        envelope: The message's envelope, as it was published.
    """

    topic: str = field(1, max_bytes=MAX_NAME)
    envelope: bytes = field(2, max_bytes="72 KiB")


@message("gossip.recent", version=1, max_bytes="512 KiB", rate="20/s", audience="member")
class Recent:
    """Messages that the asking node does not have, in the order in which the answering one took them."""

    kept: tuple[Kept, ...] = field(1, default=(), max_items=1024)


assert FRAME <= 256 * 1024, "a frame and one more envelope fit into gossip.recent"


@request(
    "gossip.ask-recent", version=1, max_bytes="64 KiB", rate="1/s burst 8", timeout="10 s", replies=Recent,
    stream=True,
)  # fmt: skip
class AskRecent:
    """Asks a peer for what was missed.

    Attributes:
        topics: Names of the topics that the asking node subscribes to.
        have: The first 8 bytes of the digests of the messages that it has.
    """

    topics: tuple[str, ...] = field(1, max_items=MAX_TOPICS, max_bytes=MAX_NAME)
    have: tuple[bytes, ...] = field(2, default=(), max_items=4096, max_bytes=8)
