"""The decoders above the protocol, and everything that declares messages; importing this completes the targets."""

import itertools
import tempfile
from pathlib import Path

import numpy as np

from protocol.errors import NodeError
from protocol.testing.fuzzing import Fuzzed, of_message, target
from protocol.units import PeerId


def declare_messages() -> None:
    """Imports everything that declares messages."""
    from node.extensions import system_messages

    system_messages()


@target("genesis")
def _genesis() -> Fuzzed:
    from diloco.genesis import Genesis
    from tests.diloco.member.fleet import tiny_genesis

    def run(data: bytes) -> None:
        try:
            genesis = Genesis.parse(data)
        except NodeError:
            return
        assert genesis.to_bytes() == data

    return Fuzzed(run, (tiny_genesis().to_bytes(), b"{}"))


@target("value")
def _value() -> Fuzzed:
    from diloco.rounds.values import Value, parse_value
    from protocol.messages import encode

    def run(data: bytes) -> None:
        try:
            value = parse_value(data)
        except (NodeError, ValueError):
            return
        assert encode(value) == data

    return Fuzzed(run, of_message(Value).seeds)


@target("growing-manifest")
def _growing() -> Fuzzed:
    from protocol.identity import Identity
    from shardcast.growth import GrowingManifest
    from shardcast.header import Header

    signer = Identity.ephemeral(b"author".ljust(32))
    whole = GrowingManifest.begin(Header("a", "1", 3, 1, author=signer.peer_id, serial=1), signer)
    for index in range(3):
        whole.append(1, bytes([index]) * 32)
    whole.close(bytes(32), signer)

    def run(data: bytes) -> None:
        reader = GrowingManifest()
        middle = len(data) // 2
        try:
            reader.feed(data[:middle])
            reader.feed(data[middle:])
        except NodeError:
            return
        assert reader.sure <= len(reader.text) <= len(data)
        reader.forget_doubtful()
        assert reader.sure == len(reader.text) and reader.ends_well

    return Fuzzed(run, (bytes(whole.text), b"{}\n"))


@target("listing")
def _listing() -> Fuzzed:
    from shardcast.http.listing import Entry, read_listing, read_peers, write_listing

    entry = Entry(
        identifier="ab" * 32, name="a/b", version="1", serial=1, author=PeerId("p"), size=1, encoding="raw",
        parent="", closed=True, result_size=1, result="",
    )  # fmt: skip

    def run(data: bytes) -> None:
        assert all(isinstance(peer, str) for peer in read_peers(data))
        try:
            cursor, entries = read_listing(data)
        except NodeError:
            return
        assert read_listing(write_listing(cursor, entries)) == (cursor, entries)

    return Fuzzed(run, (write_listing("a.1", [entry], ["http://192.0.2.1:1"]), b"{}"))


@target("manifest")
def _manifest() -> Fuzzed:
    from shardcast.building import build_manifest
    from shardcast.manifest import Manifest

    def run(data: bytes) -> None:
        try:
            manifest = Manifest.parse(data)
        except NodeError:
            return
        assert Manifest.parse(manifest.raw).digest == manifest.digest

    made = build_manifest(b"some content" * 10, "checkpoint/1", 16)
    return Fuzzed(run, (made.raw, build_manifest(b"", "a", None).raw))


@target("delta-stream")
def _delta_stream() -> Fuzzed:
    """Encoded streams against a parent: refused, or the file whose hash they end with."""
    import io
    from unittest.mock import patch

    from shardcast import limits
    from shardcast.digest import FileDigest, file_digest
    from shardcast.stream import Parent, decode, encode
    from tests.shardcast.weights import MemoryRanges

    old, new = (_safetensors(seed) for seed in (1, 2))
    parent = Parent(file_digest(old), MemoryRanges(old))

    def run(data: bytes) -> None:
        # The hash at the end would hide everything behind it from a fuzzer: without it all sorts of files are reached.
        for given in (parent, None):
            made, whole = 0, FileDigest()
            try:
                with patch.object(limits, "BLOCK", 256):
                    for piece in decode(io.BytesIO(data).read, given, len(new)):
                        made += len(piece)
                        whole.update(piece)
                        assert made <= len(new) and len(piece) <= 256
            except NodeError:
                continue
            assert made == len(new) and whole.digest() == data[-32:]

    with patch.object(limits, "BLOCK", 256):
        seeds = tuple(b"".join(encode(MemoryRanges(new), given)) for given in (parent, None))
    return Fuzzed(run, seeds)


def _safetensors(seed: int) -> bytes:
    from safetensors.numpy import save

    chance = np.random.default_rng(seed)
    kept = np.random.default_rng(0).integers(0, 9, 300, np.uint16)
    kept[:: 40 // seed] += 1
    return save(
        {"kept": kept, "new": chance.random(40, np.float32), "byte": chance.integers(0, 9, 7, np.uint8)}
    )


@target("tensor-index")
def _tensor_index() -> Fuzzed:
    """Heads of safetensors files: refused, or tensors that follow one another and end with the file."""
    from shardcast.tensors import index_fields, index_from_fields, read_index

    def run(data: bytes) -> None:
        for size in (len(data), len(data) + 99):
            try:
                index = read_index(data, size)
            except NodeError:
                continue
            assert index_from_fields(index_fields(index), size) == index
            assert all(one.end == two.start for one, two in itertools.pairwise(index))
            assert not index or index[-1].end == size

    return Fuzzed(run, (_safetensors(1), _safetensors(2)[:-99]))


@target("codecs")
def _codecs() -> Fuzzed:
    """Encoded pseudo-gradients: refused, or finite values that encode again."""
    from diloco.codec import codec

    size = 600
    codecs = [codec(name) for name in ("fp32", "fp16", "int8")]

    def run(data: bytes) -> None:
        for each in codecs:
            if len(data) == each.nbytes(size):
                try:
                    values = each.decode(data, size)
                except NodeError:
                    continue
                assert np.isfinite(values).all()
                each.encode(values)
            else:
                try:
                    each.decode(data, size)
                except NodeError:
                    continue
                raise AssertionError(f"{each.name} took {len(data)} bytes for {size} values")

    values = np.linspace(-1, 1, size, dtype=np.float32)
    return Fuzzed(run, tuple(each.encode(values) for each in codecs))


@target("checkpoint")
def _checkpoint() -> Fuzzed:
    from diloco.digest import state_digest
    from diloco.layout import Grid
    from diloco.store.checkpoints import Checkpoints
    from protocol.units import RunId

    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    grid = Grid(300, 256)
    store = Checkpoints(folder, RunId("11" * 32), grid)
    values = np.linspace(-1, 1, 300, dtype=np.float32)
    digest = state_digest(1, values, values, grid)
    path = store.write(1, values, values, digest)
    seed = path.read_bytes()

    def run(data: bytes) -> None:
        path.write_bytes(data)
        try:
            params, _ = store.read(path, 1, None)
        except NodeError:
            return
        assert params.size == 300

    return Fuzzed(run, (seed,))


@target("run-file")
def _run_file() -> Fuzzed:
    from node.runfile import parse

    def run(data: bytes) -> None:
        try:
            parse(data.decode("utf-8", "replace"))
        except NodeError:
            return

    example = Path(__file__).parents[2] / "docs" / "run.example.toml"
    return Fuzzed(run, (example.read_bytes(), b'[run]\nname = "a"\n'))


@target("event-log")
def _event_log() -> Fuzzed:
    from node.eventlog import read

    path = Path(tempfile.mkdtemp(prefix="fuzz-")) / "events.jsonl"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        try:
            list(read(path))
        except NodeError:
            return

    return Fuzzed(run, (b'{"schema":1,"t":1.5,"kind":"vote","round":3}\n', b'{"schema":1,"t":1', b"\n\n"))


@target("toploc-proof")
def _toploc_proof() -> Fuzzed:
    from toploc.proof import ProofPoly

    def run(data: bytes) -> None:
        try:
            proof = ProofPoly.from_bytes(data)
        except ValueError:
            return
        assert proof.to_bytes() == data
        assert ProofPoly.from_base64(proof.to_base64()).to_bytes() == data

    return Fuzzed(run, (ProofPoly.from_points([0, 1, 5], [3, 7, 9]).to_bytes(),))


@target("rollout-file")
def _rollout_file() -> Fuzzed:
    """What a rollout file holds, read as strangers' files are: the library aborts on some, in a process of its own."""
    import asyncio

    from rl.rollouts.files import marker_of
    from rl.rollouts.limits import Limits
    from rl.rollouts.parquet import decode, encode
    from rl.rollouts.reading import Reader
    from rl.rollouts.signing import Signed
    from tests.rl.rollouts.making import ANA, groups, plain, provenance

    limits = Limits(file_bytes=1 << 16, decoded_bytes=1 << 20, rollouts=64, transcript=4096, tokens=1 << 14)
    path = Path(tempfile.mkdtemp(prefix="fuzz-")) / "a.parquet"
    loop, reader = asyncio.new_event_loop(), Reader(limits)

    def run(data: bytes) -> None:
        path.write_bytes(data)
        marker_of(path).write_bytes(Signed.make(ANA, data).to_json())
        try:
            held, found, _ = loop.run_until_complete(reader.read(path))
        except NodeError:
            return
        if len({group.position for group in found}) == len(found):
            again, rest = decode(encode(held, found), limits)
            assert (again, plain(rest)) == (held, plain(found))

    return Fuzzed(run, (encode(provenance(), groups(7, 8, sampled=3)), encode(provenance(), ())))


@target("rollout-provenance")
def _rollout_provenance() -> Fuzzed:
    from rl.rollouts.provenance import from_json, to_json
    from tests.rl.rollouts.making import provenance

    def run(data: bytes) -> None:
        try:
            held = from_json(data)
        except NodeError:
            return
        assert to_json(held) == data

    return Fuzzed(run, (to_json(provenance()),))


@target("rollout-marker")
def _rollout_marker() -> Fuzzed:
    from rl.rollouts.signing import Signed
    from tests.rl.rollouts.making import ANA

    def run(data: bytes) -> None:
        try:
            signed = Signed.from_json(data)
        except NodeError:
            return
        assert Signed.from_json(signed.to_json()) == signed

    return Fuzzed(run, (Signed.make(ANA, b"file").to_json(),))
