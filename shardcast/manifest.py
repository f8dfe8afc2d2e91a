"""The description of a large object: what it is called, its shards with their hashes, and its close.

A manifest is text, one canonical JSON object a line (keys sorted, no spaces, ASCII), each line ended by a newline::

    {"encoding":"raw","name":"ckpt/8","record":"header","schema":2,"shard_size":4194304,"size":5000000,"version":"8"}
    {"blake3":"…","index":0,"record":"shard","size":4194304}
    {"blake3":"…","index":1,"record":"shard","size":805696}
    {"record":"close","result":"…","shards":2}

Header, shards and close are *chained*: ``link_0 = BLAKE3(b"shardcast manifest 2")`` and
``link_n = BLAKE3(link_(n-1) || line_n)``, line without its newline. The link after the close is the manifest's digest:
it names the object with every byte of it and says nothing of who published it, so whoever has the same file under the
same name and version has the same digest. A signature line is *not* chained; it signs the link after the first `after`
chained lines and may stand anywhere later, so a publisher can sign a header, then shards as they come, then the close.
A header with an ``author`` and a ``serial`` belongs to a series: a higher serial of the same author and name is newer.
Only a closed manifest describes something that may be loaded. Unknown keys are kept (they are part of the digest);
unknown encodings are the loader's to refuse.
The close's ``result`` is the file digest (`shardcast.digest`) of the object where it is raw, else of the file that it
decodes to. An encoded object says in its header how large that file is (``result_size``) and which file it needs for
that (``parent``, a file digest). The header may hold the index of a safetensors file (``tensors``). A raw object whose
shards are the pieces of its digest is refused if its close says anything else than they do.

`shardcast.building` makes one of a file. This file does no IO.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from blake3 import blake3

from protocol.identity import Signer, Verifier
from protocol.units import PeerId
from shardcast import limits
from shardcast.digest import are_pieces, digest_of_pieces
from shardcast.header import (
    HEX32,
    HEX_SIGNATURE,
    Header,
    bad,
    canonical,
    check_header,
    decode,
    header_fields,
    hex_in,
    number_in,
    read_header_fields,
)

_ORIGIN = blake3(b"shardcast manifest 2").digest()
_SIGNED = b"shardcast manifest signature 2\0"
_SHARD_LINE = re.compile(
    rb'\{"blake3":"([0-9a-f]{64})","index":(0|[1-9][0-9]{0,8}),"record":"shard","size":([1-9][0-9]{0,9})\}'
)


@dataclass(frozen=True, slots=True)
class Shard:
    """One piece of an object: `size` bytes from `offset` on, whose BLAKE3 is `digest`."""

    index: int
    offset: int
    size: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature by `peer` of the link after the first `after` chained lines."""

    peer: PeerId
    after: int
    signature: bytes


@dataclass(frozen=True, slots=True)
class Manifest:
    """A parsed manifest. Make one with `build_manifest`, `ManifestWriter` or `Manifest.parse`, never by hand.

    Attributes:
        header: Name, version and sizes.
        shards: Every shard so far, in order.
        result_digest: Digest of the file that it is or decodes to; None while the manifest is not closed.
        signatures: As they stand in the text, unverified.
        raw: The text itself, which is what travels and is stored.
        links: The link after each chained line.
    """

    header: Header
    shards: tuple[Shard, ...]
    result_digest: bytes | None
    signatures: tuple[Signature, ...]
    raw: bytes = field(repr=False)
    links: tuple[bytes, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """The object's name."""
        return self.header.name

    @property
    def size(self) -> int:
        """Bytes of the whole object."""
        return self.header.size

    @property
    def closed(self) -> bool:
        """Whether the close is there; what is not closed is never loaded."""
        return self.result_digest is not None

    @property
    def digest(self) -> bytes:
        """The last link: for a closed manifest the digest that a client is told to expect."""
        return self.links[-1]

    def signed(self, signer: Signer) -> "Manifest":
        """Return the same manifest with one more signature, over all that is chained so far."""
        line = _signature_line(len(self.links), self.links[-1], signer)
        return Manifest.parse(self.raw + line + b"\n", closed=False)

    def signed_by(self, peer: PeerId, verifier: Verifier) -> bool:
        """Whether `peer` signed the whole manifest, close included."""
        return self.closed and any(
            s.peer == peer and s.after == len(self.links) and verifies(s, self.links, verifier)
            for s in self.signatures
        )

    @staticmethod
    def parse(raw: bytes, *, closed: bool = True) -> "Manifest":
        """Read a manifest from text that anyone may have written.

        Args:
            raw: The text.
            closed: Whether one without its close is refused.

        Raises:
            NodeError: SHC_MANIFEST, with the number of the line that is wrong.
        """
        if len(raw) > limits.MAX_MANIFEST:
            raise bad(0, f"{len(raw)} bytes are more than {limits.MAX_MANIFEST}")
        writer: ManifestWriter | None = None
        for number, line in _lines(raw):
            if writer is None:
                writer = read_header(line)
            else:
                read_line(writer, line, number)
        if writer is None:
            raise bad(1, "there is no header")
        if closed and not writer.closed:
            raise bad(0, "it is not closed")
        return writer.manifest()


def said_by_shards(header: Header, shards: Sequence[Shard]) -> bytes | None:
    """The digest of a file that all these shards are, from theirs; None unless they are raw and cut as its pieces."""
    if header.encoding != "raw" or not are_pieces([shard.size for shard in shards]):
        return None
    return digest_of_pieces(header.size, (shard.digest for shard in shards))


class ManifestWriter:
    """Grows a manifest line by line, as its publisher or as whoever reads it; checks every rule on the way.

    Raises:
        NodeError: SHC_MANIFEST or SHC_NAME, from any method whose line would make the manifest invalid.
    """

    def __init__(self, header: Header, *, _line: bytes | None = None) -> None:
        check_header(header)
        self.header = header
        self._shards: list[Shard] = []
        self._signatures: list[Signature] = []
        self._result: bytes | None = None
        self._lines: list[bytes] = []
        self._links: list[bytes] = []
        self._offset = 0
        self._chain(_line or canonical(header_fields(header)))

    @property
    def closed(self) -> bool:
        """Whether the close was written."""
        return self._result is not None

    @property
    def shards(self) -> list[Shard]:
        """Every shard so far, in order."""
        return self._shards

    @property
    def links(self) -> list[bytes]:
        """The link after each chained line."""
        return self._links

    @property
    def signatures(self) -> list[Signature]:
        """As they stand in the text, unverified."""
        return self._signatures

    @property
    def lines(self) -> list[bytes]:
        """The text so far, without the ends of lines."""
        return self._lines

    def sign(self, signer: Signer) -> None:
        """Add a signature over all that is chained so far."""
        line = _signature_line(len(self._links), self._links[-1], signer)
        read_line(self, line, 0)

    @property
    def result_digest(self) -> bytes | None:
        """Digest of the file that it is or decodes to, once the close says so."""
        return self._result

    def append(self, size: int, digest: bytes, *, _line: bytes | None = None) -> None:
        """Add the next shard."""
        index = len(self._shards)
        if self.closed:
            raise bad(0, "a shard follows the close")
        if not 0 < size <= self.header.shard_size or len(digest) != 32:
            raise bad(0, f"shard {index} has {size} bytes; 1 to {self.header.shard_size} are allowed")
        if index >= limits.MAX_SHARDS or self._offset + size > self.header.size:
            raise bad(0, f"shard {index} goes beyond the {self.header.size} bytes of the header")
        self._shards.append(Shard(index, self._offset, size, digest))
        self._offset += size
        self._chain(
            _line
            or b'{"blake3":"%s","index":%d,"record":"shard","size":%d}' % (digest.hex().encode(), index, size)
        )

    def close(self, result_digest: bytes | None = None, *, _line: bytes | None = None) -> None:
        """Say that this is all, and the digest of the file that it is or decodes to.

        It may be left out where the shards say it already.
        """
        if self.closed:
            raise bad(0, "it is closed twice")
        if self._offset != self.header.size:
            raise bad(0, f"its shards have {self._offset} bytes, its header says {self.header.size}")
        said = said_by_shards(self.header, self._shards)
        digest = result_digest or said
        if digest is None or len(digest) != 32:
            raise bad(0, "the close has no digest")
        if said not in (None, digest):
            raise bad(0, "the close names another digest than its shards have")
        self._result = digest
        fields = {"record": "close", "result": digest.hex(), "shards": len(self._shards)}
        self._chain(_line or canonical(fields))

    def attach(self, signature: Signature, line: bytes) -> None:
        """Keep a signature line; whether it verifies is asked later."""
        if len(self._signatures) >= limits.MAX_SIGNATURES or not 0 < signature.after <= len(self._links):
            raise bad(0, "a signature covers lines that are not there")
        self._signatures.append(signature)
        self._lines.append(line)

    def manifest(self) -> Manifest:
        """What has been written so far."""
        return Manifest(
            self.header,
            tuple(self._shards),
            self._result,
            tuple(self._signatures),
            b"".join(line + b"\n" for line in self._lines),
            tuple(self._links),
        )

    def _chain(self, line: bytes) -> None:
        self._links.append(blake3((self._links[-1] if self._links else _ORIGIN) + line).digest())
        self._lines.append(line)


# reading what someone else wrote


def _lines(raw: bytes) -> Iterator[tuple[int, bytes]]:
    start, number = 0, 1
    while start < len(raw):
        end = raw.find(b"\n", start)
        if end < 0:
            raise bad(number, "the line has no end")
        if end - start > (limits.MAX_HEADER_LINE if number == 1 else limits.MAX_LINE):
            raise bad(number, "the line is too long")
        yield number, raw[start:end]
        start, number = end + 1, number + 1


def read_header(line: bytes) -> ManifestWriter:
    """Begin a manifest with a header that anyone may have written.

    Raises:
        NodeError: SHC_MANIFEST or SHC_NAME.
    """
    return ManifestWriter(read_header_fields(decode(1, line), 1), _line=line)


def verifies(signature: Signature, links: Sequence[bytes], verifier: Verifier) -> bool:
    """Whether a signature holds for what is chained."""
    return verifier(signature.peer, _SIGNED + links[signature.after - 1], signature.signature)


def _signature_line(after: int, link: bytes, signer: Signer) -> bytes:
    signature = signer.sign(_SIGNED + link).hex()
    return canonical({"after": after, "peer": signer.peer_id, "record": "signature", "signature": signature})


def read_line(writer: ManifestWriter, line: bytes, number: int) -> None:
    """Go on with a line that anyone may have written; `number` is for the message.

    Raises:
        NodeError: SHC_MANIFEST.
    """
    if found := _SHARD_LINE.fullmatch(line):  # the usual line, read without the cost of JSON
        digest, index, size = bytes.fromhex(found[1].decode()), int(found[2]), int(found[3])
        _append(writer, index, size, digest, line, number)
        return
    fields = decode(number, line)
    match fields.get("record"):
        case "shard":
            digest = hex_in(fields, "blake3", HEX32, number)
            _append(
                writer,
                number_in(fields, "index", number),
                number_in(fields, "size", number),
                digest,
                line,
                number,
            )
        case "close":
            if number_in(fields, "shards", number) != len(writer._shards):
                raise bad(number, "the close counts another number of shards")
            writer.close(hex_in(fields, "result", HEX32, number), _line=line)
        case "signature":
            peer = fields.get("peer")
            if not isinstance(peer, str):
                raise bad(number, "a signature names no peer")
            signature = Signature(
                PeerId(peer),
                number_in(fields, "after", number),
                hex_in(fields, "signature", HEX_SIGNATURE, number),
            )
            writer.attach(signature, line)
        case _:
            raise bad(number, "it is no shard, close or signature")


def _append(writer: ManifestWriter, index: int, size: int, digest: bytes, line: bytes, number: int) -> None:
    if index != len(writer._shards):
        raise bad(number, f"shard {index} stands where shard {len(writer._shards)} should")
    writer.append(size, digest, _line=line)
