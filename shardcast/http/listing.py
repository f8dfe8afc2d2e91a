"""What a server says that it has: one JSON document, read as if anyone had written it."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.errors import Code, NodeError
from protocol.units import PeerId
from shardcast import limits
from shardcast.header import Header
from shardcast.names import check_name, check_version

_HEX = re.compile(r"[0-9a-f]{64}")
_CURSOR = re.compile(r"[0-9a-z.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One version in a list. It is only what a server says; the manifest decides.

    Attributes:
        identifier: The link of the manifest's header, in hexadecimal.
        name: Of the object.
        version: Its label.
        serial: Its place in the order of its author's versions.
        author: Who publishes it.
        size: Bytes of the object.
        encoding: How it is encoded.
        parent: Digest of the file it needs for decoding, in hexadecimal; empty for none.
        closed: Whether the server has its close.
        result_size: Bytes that it decodes to.
        result: Digest of what it is or decodes to, in hexadecimal; empty before the close.
    """

    identifier: str
    name: str
    version: str
    serial: int
    author: PeerId
    size: int
    encoding: str
    parent: str
    closed: bool
    result_size: int
    result: str

    @staticmethod
    def of(identifier: str, header: Header, closed: bool, result: bytes | None) -> "Entry":
        """The entry of an object."""
        parent = "" if header.parent is None else header.parent.hex()
        return Entry(
            identifier, header.name, header.version, header.serial, header.author, header.size,
            header.encoding, parent, closed, header.result_size, "" if result is None else result.hex(),
        )  # fmt: skip


def write_listing(cursor: str, entries: Iterable[Entry], peers: Sequence[str] = ()) -> bytes:
    """The document."""
    versions = [
        {
            "author": e.author, "closed": e.closed, "encoding": e.encoding, "name": e.name, "object": e.identifier,
            "parent": e.parent, "result": e.result, "result_size": e.result_size, "serial": e.serial, "size": e.size,
            "version": e.version,
        }
        for e in entries
    ]  # fmt: skip
    return json.dumps(
        {"cursor": cursor, "peers": peers, "schema": 2, "versions": versions}, sort_keys=True
    ).encode()


def read_listing(data: bytes) -> tuple[str, tuple[Entry, ...]]:
    """The cursor and the entries of a document. Entries that are not valid are left out, unknown keys ignored.

    Raises:
        NodeError: SHC_MANIFEST, when it is no list at all.
    """
    try:
        document = json.loads(data)
        cursor, versions = document["cursor"], document["versions"]
        if not isinstance(cursor, str) or not _CURSOR.fullmatch(cursor) or not isinstance(versions, list):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NodeError(Code.SHC_MANIFEST, "What should be a list of versions is none.") from None
    entries = (_entry(fields) for fields in versions[: limits.MAX_VERSIONS])
    return cursor, tuple(entry for entry in entries if entry is not None)


def read_peers(data: bytes) -> tuple[str, ...]:
    """The clients that serve others, as a document names them; none, where it is not valid."""
    try:
        peers = json.loads(data)["peers"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    if not isinstance(peers, list):
        return ()
    return tuple(peer for peer in peers[: limits.MAX_PEERS] if isinstance(peer, str))


def _entry(fields: Any) -> Entry | None:
    try:
        identifier, author, parent = fields["object"], fields["author"], fields["parent"]
        result = fields.get("result", "")
        if not _HEX.fullmatch(identifier) or not all(d == "" or _HEX.fullmatch(d) for d in (parent, result)):
            return None
        numbers = [fields[key] for key in ("serial", "size", "result_size")]
        if any(type(n) is not int or not 0 <= n <= limits.MAX_OBJECT for n in numbers):
            return None
        texts = (author, fields["encoding"])
        if any(not isinstance(text, str) or len(text) > limits.MAX_VERSION for text in texts):
            return None
        name, version = check_name(fields["name"]), check_version(fields["version"])
        closed = fields["closed"] is True
    except (KeyError, TypeError, NodeError):
        return None
    serial, size, decoded = numbers
    return Entry(
        identifier,
        name,
        version,
        serial,
        PeerId(author),
        size,
        fields["encoding"],
        parent,
        closed,
        decoded,
        result,
    )
