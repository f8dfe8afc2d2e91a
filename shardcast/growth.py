"""A manifest that grows while it is read: what may be believed of it so far."""

from collections.abc import Sequence

from protocol import identity
from protocol.errors import Code, NodeError
from protocol.identity import Verifier
from shardcast import limits
from shardcast.header import Header
from shardcast.manifest import Manifest, ManifestWriter, Shard, read_header, read_line, verifies


class GrowingManifest:
    """Reads a manifest's text piece by piece, from its beginning, and checks every line as it comes.

    Nothing is believed before the author that the header names signed it: `believed` says how far the signatures
    reach. Who expects a certain digest believes nothing before the close. The text is kept as it came, so it can be
    handed on.

    Args:
        digest: The manifest's digest, where that is known; then everything is believed that leads to it.
        verifier: Checks signatures.

    Attributes:
        raw: The whole lines so far.
        believed: Chained lines that may be believed.
    """

    def __init__(self, digest: bytes | None = None, verifier: Verifier = identity.verify) -> None:
        self._digest = digest
        self._verifier = verifier
        self._writer: ManifestWriter | None = None
        self._rest = b""
        self._lines = 0
        self._seen = 0  # signatures
        self.raw = bytearray()
        self.believed = 0

    @property
    def header(self) -> Header | None:
        """The header, once its author signed it."""
        return self._writer.header if self._writer is not None and self.believed else None

    @property
    def shards(self) -> Sequence[Shard]:
        """The shards that the author signed, in order."""
        return () if self._writer is None else self._writer.shards[: max(0, self.believed - 1)]

    @property
    def count(self) -> int:
        """How many these are."""
        return 0 if self._writer is None else min(max(0, self.believed - 1), len(self._writer.shards))

    @property
    def closed(self) -> bool:
        """Whether the author signed the close."""
        return self._writer is not None and self._writer.closed and self.believed == len(self._writer.links)

    @property
    def identifier(self) -> str:
        """The link of the header in hexadecimal, which names the object from its first line on; empty before it."""
        return "" if self._writer is None else self._writer.links[0].hex()

    def manifest(self) -> Manifest:
        """The manifest so far."""
        assert self._writer is not None
        return self._writer.manifest()

    def since(self, index: int) -> Sequence[Shard]:
        """The believed shards from one on."""
        return () if self._writer is None else self._writer.shards[index : self.count]

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the text.

        Raises:
            NodeError: SHC_MANIFEST, SHC_NAME: what came is not the next part of a manifest, or a signature is forged.
        """
        if len(self.raw) + len(self._rest) + len(data) > limits.MAX_MANIFEST:
            raise NodeError(Code.SHC_MANIFEST, "The manifest is longer than any may be.")
        text = self._rest + data
        start = 0
        while (end := text.find(b"\n", start)) >= 0:
            self._line(text[start:end])
            start = end + 1
        self._rest = text[start:]
        if len(self._rest) > (limits.MAX_LINE if self._lines else limits.MAX_HEADER_LINE):
            raise NodeError(Code.SHC_MANIFEST, "A line of the manifest is too long.")

    def _line(self, line: bytes) -> None:
        self._lines += 1
        if self._writer is None:
            self._writer = read_header(line)
        else:
            read_line(self._writer, line, self._lines)
        self.raw += line + b"\n"
        signatures = self._writer.signatures
        for signature in signatures[self._seen :]:
            if signature.peer != self._writer.header.author:
                continue
            if not verifies(signature, self._writer.links, self._verifier):
                raise NodeError(Code.SHC_MANIFEST, "A signature of the manifest's author is forged.")
            self.believed = max(self.believed, signature.after)
        self._seen = len(signatures)
        if self._writer.closed and self._writer.links[-1] == self._digest:
            self.believed = len(self._writer.links)
