"""What a client trusts, fixed before anyone is asked: never the holder that sends the bytes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol import identity
from protocol.errors import Code, NodeError
from protocol.identity import Verifier
from protocol.units import PeerId
from shardcast import limits
from shardcast.header import Header
from shardcast.manifest import Manifest, Shard, said_by_shards
from shardcast.names import check_name


@dataclass(frozen=True, kw_only=True)
class Expect:
    """Grounds for believing an object. Give at least one of the first four; all that are given must hold.

    Attributes:
        manifest_digest: Digest of the manifest, as a certificate or the publisher announced it.
        shard_hashes: BLAKE3 of every shard in order, as a certified value names them. With `shard_sizes` no manifest
            is asked for at all.
        publisher: Who must have signed the manifest, close included. Alone it does not say which version: give
            `version` too.
        verify: Called in a thread with the path of the finished file before it gets its name; false means that whoever
            offered this manifest lied, and the next one offered is tried. For a digest that is computed otherwise than
            the manifest's, such as a state digest. Until then nothing limits a lying manifest but `max_bytes`.
        shard_sizes: Bytes of every shard in order.
        version: The version label the manifest must have.
        max_bytes: The largest object that is accepted, and the largest file that one may decode to.
        verifier: Checks the publisher's signature.
        encodings: The encodings that the object may have.
    """

    manifest_digest: bytes | None = None
    shard_hashes: Sequence[bytes] | None = None
    publisher: PeerId | None = None
    verify: Callable[[Path], bool] | None = None
    shard_sizes: Sequence[int] | None = None
    version: str | None = None
    max_bytes: int = limits.MAX_OBJECT
    verifier: Verifier = identity.verify
    encodings: Collection[str] = ("raw",)

    def __post_init__(self) -> None:
        """Raises ValueError for an expectation that expects nothing or contradicts itself."""
        if (
            self.manifest_digest is None
            and self.shard_hashes is None
            and not self.publisher
            and not self.verify
        ):
            raise ValueError("expect a manifest digest, shard hashes, a publisher or a check of the result")
        if self.manifest_digest is not None and len(self.manifest_digest) != 32:
            raise ValueError("a manifest digest has 32 bytes")
        if self.shard_hashes is not None:
            if len(self.shard_hashes) > limits.MAX_SHARDS or any(len(h) != 32 for h in self.shard_hashes):
                raise ValueError(f"shard hashes have 32 bytes each, at most {limits.MAX_SHARDS} of them")
            if self.shard_sizes is not None and len(self.shard_sizes) != len(self.shard_hashes):
                raise ValueError("there are as many shard sizes as shard hashes")
        if self.shard_sizes is not None and not all(
            0 < size <= limits.MAX_SHARD for size in self.shard_sizes
        ):
            raise ValueError(f"a shard has 1 to {limits.MAX_SHARD} bytes")

    @property
    def pinned(self) -> bool:
        """Whether there can be only one manifest that holds."""
        return self.manifest_digest is not None or self.shard_hashes is not None

    def known(self, name: str) -> "Plan | None":
        """The plan, where it follows from the expectation alone and no manifest is needed."""
        if self.shard_hashes is None or self.shard_sizes is None or self.manifest_digest or self.publisher:
            return None
        shards, offset = [], 0
        for index, (size, digest) in enumerate(zip(self.shard_sizes, self.shard_hashes, strict=True)):
            shards.append(Shard(index, offset, size, digest))
            offset += size
        if offset > self.max_bytes:
            raise NodeError(
                Code.SHC_MANIFEST, f"{name} has {offset} bytes, at most {self.max_bytes} are accepted."
            )
        return Plan(check_name(name), tuple(shards), offset, None, b"")

    def objection(self, name: str, header: Header) -> str | None:
        """What speaks against a header, in words; None if nothing does."""
        for wrong, why in (
            (header.name != name, f"it is that of {header.name}"),
            (header.encoding not in self.encodings, f"its encoding {header.encoding[:40]!r} is not wanted"),
            (self.version is not None and header.version != self.version, f"it is version {header.version}"),
            (
                (size := max(header.size, header.result_size)) > self.max_bytes,
                f"{size} bytes are more than the {self.max_bytes} accepted",
            ),
        ):
            if wrong:
                return why
        return None

    def judge(self, name: str, raw: bytes) -> "Plan":
        """Read an offered manifest and hold it against the expectation.

        Args:
            name: What was asked for.
            raw: What came.

        Raises:
            NodeError: SHC_MANIFEST, with the reason.
        """
        manifest = Manifest.parse(raw)
        header = manifest.header
        if (why := self.objection(name, header)) is not None:
            raise NodeError(Code.SHC_MANIFEST, f"The manifest offered for {name} is refused: {why}.")
        for wrong, why in (
            (self.manifest_digest not in (None, manifest.digest), "its digest is not the expected one"),
            (
                self.shard_hashes is not None
                and [s.digest for s in manifest.shards] != list(self.shard_hashes),
                "its shards are not the expected ones",
            ),
            (
                self.shard_sizes is not None and [s.size for s in manifest.shards] != list(self.shard_sizes),
                "its shards have other sizes than expected",
            ),
        ):
            if wrong:
                raise NodeError(Code.SHC_MANIFEST, f"The manifest offered for {name} is refused: {why}.")
        if self.publisher is not None and not manifest.signed_by(self.publisher, self.verifier):
            raise NodeError(
                Code.SHC_MANIFEST, f"The manifest offered for {name} is not signed by {self.publisher}."
            )
        return Plan.of(manifest)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be fetched.

    Attributes:
        name: Of the object.
        shards: Each with place, size and hash.
        size: Bytes in all.
        whole: Digest of the file, where it is one that its shards do not say.
        manifest_digest: Names the very object to its holders; empty if no manifest is known.
    """

    name: str
    shards: tuple[Shard, ...]
    size: int
    whole: bytes | None
    manifest_digest: bytes

    @staticmethod
    def of(manifest: Manifest) -> "Plan":
        """The plan that a closed manifest describes."""
        raw = manifest.header.encoding == "raw"
        said = said_by_shards(manifest.header, manifest.shards)
        whole = manifest.result_digest if raw and said is None else None
        return Plan(manifest.name, manifest.shards, manifest.size, whole, manifest.digest)
