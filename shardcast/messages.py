"""What holders and clients of objects say to each other over the gRPC carrier.

Content travels unsealed on the bulk plane: the connection is authenticated and every byte is verified by hash.
"""

from protocol.messages import field, message, part, request, topic
from shardcast import limits


@message(
    "shardcast.manifest-part", version=1, max_bytes="1 MiB", rate="1000/s", audience="member", plane="bulk"
)
class ManifestPart:
    """The next bytes of a manifest's text; the stream's end is the text's end."""

    data: bytes = field(1)


@request(
    "shardcast.ask-manifest",
    version=1,
    max_bytes="1 KiB",
    rate="20/s burst 40",
    timeout="10 s",
    replies=ManifestPart,
    stream=True,
    plane="bulk",
)
class AskManifest:
    """Asks for the manifest of an object.

    `digest` is empty, or that of the one manifest that will do.
    """

    name: str = field(1)
    digest: bytes = field(2, default=b"")


@part
class Want:
    """A shard, from a byte of it on."""

    index: int = field(1)
    offset: int = field(2, default=0)


@message("shardcast.frame", version=1, max_bytes="1 MiB", rate="1000/s", audience="member", plane="bulk")
class Frame:
    """The next bytes of a shard that was asked for, in the order of asking.

    `missing` says instead that the holder cannot give this shard, and goes on with the next.
    """

    index: int = field(1)
    offset: int = field(2, default=0)
    data: memoryview = field(3, default=memoryview(b""))
    missing: bool = field(4, default=False)


@request(
    "shardcast.ask-shards",
    version=1,
    max_bytes="8 KiB",
    rate="50/s burst 100",
    timeout="10 s",
    replies=Frame,
    stream=True,
    plane="bulk",
)
class AskShards:
    """Asks for shards of an object.

    `digest` is that of the manifest the indexes belong to, or empty where the hashes are known from elsewhere.
    """

    name: str = field(1)
    digest: bytes = field(2, default=b"")
    wanted: tuple[Want, ...] = field(3, default=(), max_items=limits.MAX_WANTS)


@part
class Listed:
    """One object that a node serves."""

    name: str = field(1)
    version: str = field(2)
    size: int = field(3)
    digest: bytes = field(4)


@message("shardcast.list", version=1, max_bytes="64 KiB", rate="20/s", audience="member")
class Listing:
    """Objects in order of name; `more` if there are further ones."""

    objects: tuple[Listed, ...] = field(1, default=(), max_items=limits.MAX_LISTED)
    more: bool = field(2, default=False)


@request(
    "shardcast.ask-list", version=1, max_bytes="1 KiB", rate="5/s burst 10", timeout="5 s", replies=Listing
)
class AskList:
    """Asks what a node serves: names that begin with `prefix`, behind `after` in order."""

    prefix: str = field(1, default="")
    after: str = field(2, default="")


@topic("shardcast.announced", version=1, max_bytes="1 KiB", rate="10/s", audience="member")
class Announced:
    """The publishing relay has the beginning of a version, or all of it. It is a hint: the manifest decides.

    Attributes:
        object: The link of the manifest's header (32 bytes).
        name: Of the object.
        label: The version's label.
        serial: Its place in the order of its author's versions.
        author: Who publishes it.
    """

    object: bytes = field(1, max_bytes=32)
    name: str = field(2, max_bytes=limits.MAX_NAME)
    label: str = field(3, max_bytes=limits.MAX_VERSION)
    serial: int = field(4)
    author: str = field(5, max_bytes=64)
