"""The first line of a manifest, and how lines are written and read: canonical JSON, checked field by field."""

import json
import re
from dataclasses import dataclass
from typing import Any

from protocol.errors import Code, NodeError
from protocol.units import PeerId
from shardcast import limits
from shardcast.names import check_name, check_version
from shardcast.tensors import TensorIndex, index_fields, index_from_fields

SCHEMA = 2
NOBODY = PeerId("")
HEX32 = re.compile(r"[0-9a-f]{64}")
HEX_SIGNATURE = re.compile(r"(?:[0-9a-f]{2}){1,255}")


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of an object before its first shard.

    Attributes:
        name: The object's name.
        version: Its version label.
        size: Bytes of the whole object.
        shard_size: Bytes of its largest shard; 0 only for an empty object.
        encoding: How content was encoded: "raw" or one of `shardcast.encoding.ENCODINGS`.
        result_size: Bytes of the file that content decodes to; the same as `size` where it is raw.
        parent: Digest of the file that is needed for decoding, if one is.
        tensors: Where each tensor lies in the decoded file, if it is a safetensors file and that was said.
        author: Who publishes it and signs as it grows; empty where only the digest counts.
        serial: Its place in the order of its author's versions of this name; 0 where there is no order.
    """

    name: str
    version: str
    size: int
    shard_size: int
    encoding: str = "raw"
    result_size: int = -1
    parent: bytes | None = None
    tensors: TensorIndex | None = None
    author: PeerId = NOBODY
    serial: int = 0

    def __post_init__(self) -> None:
        """Gives raw content its size."""
        if self.result_size < 0 and self.encoding == "raw":
            object.__setattr__(self, "result_size", self.size)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The file that encoded content stands for.

    Attributes:
        encoding: How content was encoded.
        size: Bytes of the file.
        digest: Its file digest.
        parent: Digest of the file that is needed for decoding, if one is.
    """

    encoding: str
    size: int
    digest: bytes
    parent: bytes | None = None


def read_header_fields(fields: dict[str, Any], number: int) -> Header:
    """The header that a decoded line is.

    Raises:
        NodeError: SHC_MANIFEST or SHC_NAME.
    """
    if fields.get("record") != "header":
        raise bad(number, "it is no header")
    if fields.get("schema") != SCHEMA or isinstance(fields["schema"], bool):
        raise bad(number, f"its schema is not {SCHEMA}")
    encoding = fields.get("encoding")
    if not isinstance(encoding, str) or len(encoding) > limits.MAX_VERSION:
        raise bad(number, "it names no encoding")
    size = number_in(fields, "size", number)
    decoded = number_in(fields, "result_size", number) if encoding != "raw" else size
    return Header(
        check_name(fields.get("name")),
        check_version(fields.get("version")),
        size,
        number_in(fields, "shard_size", number),
        encoding,
        decoded,
        hex_in(fields, "parent", HEX32, number) if encoding != "raw" and "parent" in fields else None,
        _tensors(fields["tensors"], decoded, number) if "tensors" in fields else None,
        _author(fields, number),
        number_in(fields, "serial", number) if "serial" in fields else 0,
    )


def _tensors(fields: object, size: int, number: int) -> TensorIndex:
    try:
        return index_from_fields(fields, size)
    except NodeError as error:
        raise bad(number, error.sentence.removesuffix(".")) from error


def _author(fields: dict[str, Any], number: int) -> PeerId:
    author = fields.get("author", "")
    if not isinstance(author, str) or len(author) > limits.MAX_VERSION:
        raise bad(number, "it names no author that could be one")
    return PeerId(author)


def check_header(header: Header) -> None:
    """Refuse a header that no manifest may have.

    Raises:
        NodeError: SHC_MANIFEST or SHC_NAME.
    """
    check_name(header.name)
    check_version(header.version)
    if not 0 <= header.size <= limits.MAX_OBJECT:
        raise bad(1, f"{header.size} bytes are more than an object may have")
    if not 0 <= header.result_size <= limits.MAX_OBJECT:
        raise bad(1, "it does not say how large the decoded file is")
    if header.parent is not None and (header.encoding == "raw" or len(header.parent) != 32):
        raise bad(1, "its parent is no digest, or its content is raw and needs none")
    if not (0 < header.shard_size <= limits.MAX_SHARD or header.shard_size == header.size == 0):
        raise bad(1, f"a shard size of {header.shard_size} bytes is not allowed; 1 to {limits.MAX_SHARD} are")


def header_fields(header: Header) -> dict[str, Any]:
    """The fields of a header's line."""
    fields: dict[str, Any] = {
        "encoding": header.encoding,
        "name": header.name,
        "record": "header",
        "schema": SCHEMA,
        "shard_size": header.shard_size,
        "size": header.size,
        "version": header.version,
    }
    if header.encoding != "raw":
        fields["result_size"] = header.result_size
    if header.parent is not None:
        fields["parent"] = header.parent.hex()
    if header.tensors is not None:
        fields["tensors"] = index_fields(header.tensors)
    if header.author:
        fields["author"] = header.author
    if header.serial:
        fields["serial"] = header.serial
    return fields


def canonical(fields: dict[str, Any]) -> bytes:
    """The one text of a line."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def decode(number: int, line: bytes) -> dict[str, Any]:
    """Read a line; what is not canonical is refused."""
    try:
        fields = json.loads(line)
        # one text for one meaning: doubled keys, spaces, floats written two ways and the like do not survive this
        if isinstance(fields, dict) and canonical(fields) == line:
            return fields
    except (ValueError, RecursionError):
        pass
    raise bad(number, "it is not canonical JSON")


def number_in(fields: dict[str, Any], key: str, number: int) -> int:
    """A field that is a number within the bounds of an object; `number` is the line's."""
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limits.MAX_OBJECT:
        raise bad(number, f"{key} is not a number that is allowed")
    return value


def hex_in(fields: dict[str, Any], key: str, pattern: re.Pattern[str], number: int) -> bytes:
    """A field that is bytes in lower-case hexadecimal."""
    value = fields.get(key)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise bad(number, f"{key} is not lower-case hexadecimal of the right length")
    return bytes.fromhex(value)


def bad(number: int, why: str) -> NodeError:
    """What is said of a manifest that is not valid; line 0 means no certain line."""
    where = f" in line {number}" if number else ""
    return NodeError(Code.SHC_MANIFEST, f"The manifest is not valid{where}: {why}.")
