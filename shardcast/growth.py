"""A manifest that grows: written by its author, or read and handed on before it is closed."""

from collections.abc import Sequence

from protocol import identity
from protocol.errors import Code, NodeError
from protocol.identity import Signer, Verifier
from shardcast import limits
from shardcast.header import Header
from shardcast.manifest import Manifest, ManifestWriter, Shard, read_header, read_line, verifies


class GrowingManifest:
    """Reads a manifest's text piece by piece, from its beginning, and checks every line as it comes.

    Nothing is believed before the author that the header names signed it. Who expects a certain digest believes
    nothing before the close, and then everything that leads to it.

    Args:
        digest: The manifest's digest, where that is known.
        verifier: Checks signatures.

    Attributes:
        text: The whole lines so far.
        sure: Bytes of the text that may be believed, and handed on.
        count: Shards that may be believed.
        closed: Whether the close may be believed.
    """

    def __init__(self, digest: bytes | None = None, verifier: Verifier = identity.verify) -> None:
        self.text = bytearray()
        self.sure = self.count = 0
        self.closed = False
        self._digest, self._verifier = digest, verifier
        self._writer: ManifestWriter | None = None
        self._rest = b""
        self._seen = 0  # signatures

    @classmethod
    def begin(cls, header: Header, signer: Signer) -> "GrowingManifest":
        """Start a manifest as its author."""
        growing = cls()
        growing._writer = ManifestWriter(header)
        growing.sign(signer)
        return growing

    @property
    def header(self) -> Header | None:
        """The header, once it may be believed."""
        return self._writer.header if self._writer is not None and self.sure else None

    @property
    def identifier(self) -> str:
        """The link of the header in hexadecimal, which names the object from its first line on; empty before it."""
        return "" if self._writer is None else self._writer.links[0].hex()

    @property
    def digest(self) -> bytes | None:
        """The manifest's digest, once it is closed."""
        return self._writer.links[-1] if self._writer is not None and self.closed else None

    @property
    def result_digest(self) -> bytes | None:
        """Digest of the file that the object is or decodes to, once it is closed."""
        return self._writer.result_digest if self._writer is not None and self.closed else None

    @property
    def ends_well(self) -> bool:
        """Whether the text ends where it may be believed, or, where only a digest counts, may still come to it."""
        if self._rest or self._writer is None:
            return not self._rest
        return self.sure == len(self.text) or (self._digest is not None and not self._writer.closed)

    def shard(self, index: int) -> Shard:
        """A shard that may be believed."""
        if self._writer is None or not 0 <= index < self.count:
            raise IndexError(index)
        return self._writer.shards[index]

    def since(self, index: int) -> Sequence[Shard]:
        """The believed shards from one on."""
        return () if self._writer is None else self._writer.shards[index : self.count]

    def manifest(self) -> Manifest:
        """The manifest so far."""
        assert self._writer is not None
        return self._writer.manifest()

    # ---- reading

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the text.

        Raises:
            NodeError: SHC_MANIFEST, SHC_NAME: what came is not the next part of a manifest, or a signature is forged.
        """
        if len(self.text) + len(self._rest) + len(data) > limits.MAX_MANIFEST:
            raise NodeError(Code.SHC_MANIFEST, "The manifest is longer than any may be.")
        text = self._rest + data
        start = 0
        while (end := text.find(b"\n", start)) >= 0:
            self._line(text[start:end])
            start = end + 1
        self._rest = text[start:]
        if len(self._rest) > (limits.MAX_HEADER_LINE if self._writer is None else limits.MAX_LINE):
            raise NodeError(Code.SHC_MANIFEST, "A line of the manifest is too long.")

    def forget_doubtful(self) -> None:
        """Go back to what may be believed: the next bytes come from someone else."""
        if self._rest or len(self.text) != self.sure:
            again = GrowingManifest(self._digest, self._verifier)
            again.feed(bytes(self.text[: self.sure]))
            self.__dict__.update(again.__dict__)

    def _line(self, line: bytes) -> None:
        if self._writer is None:
            self._writer = read_header(line)
        else:
            read_line(self._writer, line, len(self._writer.lines) + 1)
        self.text += line + b"\n"
        writer = self._writer
        for signature in writer.signatures[self._seen :]:
            if self._digest is not None or signature.peer != writer.header.author:
                continue
            if signature.after != len(writer.links):
                continue  # of less than stands before it
            if not verifies(signature, writer.links, self._verifier):
                raise NodeError(Code.SHC_MANIFEST, "A signature of the manifest's author is forged.")
            self._believe()
        self._seen = len(writer.signatures)
        if writer.closed and writer.links[-1] == self._digest:  # only signatures follow
            self._believe()

    def _believe(self) -> None:
        assert self._writer is not None
        self.count, self.closed, self.sure = len(self._writer.shards), self._writer.closed, len(self.text)

    # ---- writing, as the author

    def append(self, size: int, digest: bytes) -> None:
        """Add the next shard; nobody believes it before it is signed."""
        assert self._writer is not None
        self._writer.append(size, digest)

    def close(self, result: bytes | None, signer: Signer) -> None:
        """Say that this is all, and sign it; see :meth:`ManifestWriter.close`."""
        assert self._writer is not None
        self._writer.close(result)
        self.sign(signer)

    def sign(self, signer: Signer) -> None:
        """Sign what there is, so that others may believe it."""
        assert self._writer is not None
        self._writer.sign(signer)
        for line in self._writer.lines[self._written :]:
            self.text += line + b"\n"
        self._written = len(self._writer.lines)
        self._seen = len(self._writer.signatures)
        self._believe()

    _written = 0  # lines of the writer that are in the text
