import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_all
from safetensors.torch import save

import shardcast
from protocol.errors import Code, NodeError
from protocol.units import PeerId
from shardcast.building import build_manifest
from shardcast.digest import file_digest
from shardcast.encoding import ENCODINGS, Held, encode_file
from shardcast.expect import Expect
from shardcast.header import Header
from shardcast.manifest import Manifest, ManifestWriter
from shardcast.ranges import Arrivals, FileRanges
from shardcast.stream import Parent, index_of
from tests.shardcast.weights import MemoryRanges, Weight, file_of, weight_of

LARGE = 40_000
MODEL = {
    "embed": torch.randn(LARGE, 3, generator=torch.Generator().manual_seed(1)).bfloat16(),
    "norm": torch.ones(64, dtype=torch.float32),
    "scalar": torch.tensor(3.5, dtype=torch.float16),
    "none": torch.empty(0, 7),
    "mask": torch.tensor([True, False, True]),
    "steps": torch.tensor([[2**40], [-1]]),
    "small": torch.randn(9).to(torch.float8_e4m3fn),
    "head": torch.randn(LARGE, generator=torch.Generator().manual_seed(2)).half(),
}
FILE = save(MODEL)


def raw(folder: Path, content: bytes = FILE) -> tuple[Manifest, Path]:
    path = folder / "object"
    path.write_bytes(content)
    return build_manifest(path, "policy", version="8"), path


def encoded(folder: Path, content: bytes, parent: bytes | None = None) -> tuple[Manifest, Path, Held | None]:
    (folder / "new").write_bytes(content)
    held = None
    if parent is not None:
        (folder / "parent").write_bytes(parent)
        held = Held(folder / "parent", file_digest(parent))
    with FileRanges(folder / "new") as ranges:
        before = Parent(held.digest, MemoryRanges(parent)) if held and parent else None
        decoded = encode_file(ranges, folder / "object", before)
    return build_manifest(folder / "object", "policy", version="8", decoded=decoded), folder / "object", held


def same(found: Any, wanted: torch.Tensor) -> bool:
    return (
        found.dtype == wanted.dtype
        and found.shape == wanted.shape
        and bool((found.reshape(-1).view(torch.uint8) == wanted.reshape(-1).view(torch.uint8)).all())
    )


def test_tensors_are_those_that_the_library_reads(tmp_path: Path) -> None:
    wanted = load_all(FILE)
    found = dict(shardcast.load(*raw(tmp_path)))
    assert found.keys() == wanted.keys() and all(same(found[name], wanted[name]) for name in wanted)


def test_an_encoded_object_gives_the_same_tensors(tmp_path: Path) -> None:
    before = MODEL | {"embed": MODEL["embed"] + 0.01, "gone": torch.ones(3)}
    for parent in (save(before), None):
        manifest, path, held = encoded(tmp_path, FILE, parent)
        found = dict(shardcast.load(manifest, path, parent=held))
        assert found.keys() == MODEL.keys() and all(same(found[name], MODEL[name]) for name in MODEL)


def test_without_torch_they_are_arrays_of_numpy(tmp_path: Path) -> None:
    manifest, path = raw(tmp_path)
    found = dict(shardcast.load(manifest, path, framework="numpy"))
    assert {name: (array.dtype.str, array.shape) for name, array in found.items()} == {
        "embed": ("<u2", (LARGE, 3)), "norm": ("<f4", (64,)), "scalar": ("<f2", ()), "none": ("<f4", (0, 7)),
        "mask": ("|b1", (3,)), "steps": ("<i8", (2, 1)), "small": ("|u1", (9,)), "head": ("<f2", (LARGE,)),
    }  # fmt: skip
    assert (found["embed"] == MODEL["embed"].view(torch.uint16).numpy()).all()
    code = (
        "import sys, shardcast, pathlib; p = pathlib.Path(sys.argv[1]);"
        "m = shardcast.build_manifest(p, 'policy'); n = [x for x, _ in shardcast.load(m, p, framework='numpy')];"
        "assert 'torch' not in sys.modules; print(len(n))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(MODEL)


def test_elements_smaller_than_a_byte_are_given_as_their_bytes(tmp_path: Path) -> None:
    content = file_of([Weight("quarter", "F4", (3, 2), b"abc"), Weight("six", "F6_E2M3", (4,), b"xyz")])
    for framework in ("numpy", "torch"):
        found = dict(shardcast.load(*raw(tmp_path, content), framework=framework))  # type: ignore[arg-type]
        assert bytes(found["quarter"].tolist()) == b"abc" and bytes(found["six"].tolist()) == b"xyz"


def test_tensors_may_be_written_to_and_outlive_the_file(tmp_path: Path) -> None:
    manifest, path = raw(tmp_path)
    found = dict(shardcast.load(manifest, path))
    found["embed"].zero_()
    assert path.read_bytes() == FILE, "writing to a tensor wrote to the file"
    path.unlink()
    assert same(found["head"], MODEL["head"]) and not found["embed"].any()


class Growing:
    """A file of full length whose bytes come when a test says so, and a thread that loads it meanwhile."""

    def __init__(self, manifest: Manifest, content: bytes, path: Path, held: Held | None = None) -> None:
        self.arrivals, self.content, self.path = Arrivals(), content, path
        path.write_bytes(bytes(len(content)))
        self.got: dict[str, Any] = {}
        self.error: NodeError | None = None
        self.ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self._load,
            args=(shardcast.load(manifest, path, arrivals=self.arrivals, parent=held),),
            daemon=True,
        )
        self._thread.start()

    def _load(self, tensors: Iterator[tuple[str, Any]]) -> None:
        try:
            for name, tensor in tensors:
                with self._changed:
                    self.got[name] = tensor
                    self._changed.notify_all()
            self.ended = True
        except NodeError as error:
            self.error = error

    def arrive(self, start: int, end: int) -> None:
        with open(self.path, "r+b") as file:
            file.seek(start)
            file.write(self.content[start:end])
        self.arrivals.add(start, end)

    def wait_for(self, name: str) -> Any:
        with self._changed:
            assert self._changed.wait_for(lambda: name in self.got, 60), f"{name} did not come"
            return self.got[name]

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_a_tensor_comes_before_the_last_byte_of_the_file(tmp_path: Path) -> None:
    with FileRanges(raw(tmp_path)[1]) as ranges:
        index = index_of(ranges)
    head = ManifestWriter(Header("policy", "8", len(FILE), 1 << 20)).manifest()
    growing = Growing(head, FILE, tmp_path / "object.part")
    assert not growing.got
    first = index[0]
    growing.arrive(100, first.end)
    growing.arrive(0, 100)
    tensor = growing.wait_for(first.name)
    assert same(tensor, MODEL[first.name])
    tensor.reshape(-1).view(torch.uint8).zero_()  # shares a page with what is still to come
    growing.arrive(first.end, len(FILE))
    growing.wait_for(index[-1].name)
    assert all(same(growing.got[info.name], MODEL[info.name]) for info in index[1:])
    assert not growing.ended, "it ends before the whole was checked"
    growing.path.rename(tmp_path / "done")
    growing.arrivals.finish()
    growing.join()
    assert growing.ended


def test_a_tensor_of_a_delta_comes_before_its_last_byte(tmp_path: Path) -> None:
    weights = [weight_of(name, "BF16", bytes(5 << 20)) for name in "ab"]
    chance = np.random.default_rng(0)
    after = [weight_of(name, "BF16", chance.bytes(5 << 20)) for name in "ab"]
    manifest, path, held = encoded(tmp_path, file_of(after), file_of(weights))
    stream = path.read_bytes()
    growing = Growing(manifest, stream, tmp_path / "object.part", held)
    growing.arrive(0, len(stream) * 7 // 10)
    tensor = growing.wait_for("a")
    assert bytes(tensor.view(torch.uint8).numpy()) == after[0].data and "b" not in growing.got
    growing.arrive(len(stream) * 7 // 10, len(stream))
    growing.arrivals.finish()
    growing.join()
    assert growing.ended and bytes(growing.got["b"].view(torch.uint8).numpy()) == after[1].data


def test_a_fetch_that_fails_ends_the_loading_with_its_reason(tmp_path: Path) -> None:
    manifest, _ = raw(tmp_path)
    growing = Growing(manifest, FILE, tmp_path / "object.part")
    growing.arrive(0, 2000)
    growing.arrivals.fail(NodeError(Code.SHC_NO_HOLDER, "Nobody has it."))
    growing.join()
    assert growing.error is not None and growing.error.code is Code.SHC_NO_HOLDER and not growing.ended


def refused(manifest: Manifest, path: Path, **options: Any) -> Code:
    with pytest.raises(NodeError) as caught:
        for _ in shardcast.load(manifest, path, **options):
            pass
    return caught.value.code


@pytest.mark.failure_mode(44)
def test_what_is_not_closed_is_not_loaded(tmp_path: Path) -> None:
    manifest, path = raw(tmp_path)
    begun = Manifest.parse(manifest.raw[: manifest.raw.rindex(b"\n", 0, -1) + 1], closed=False)
    assert refused(begun, path) is Code.SHC_MANIFEST


def test_a_file_that_is_not_what_the_manifest_says_is_refused(tmp_path: Path) -> None:
    manifest, path = raw(tmp_path)
    path.write_bytes(FILE[:-1])
    assert refused(manifest, path) is Code.STO_CORRUPT
    assert refused(*raw(tmp_path, b"no tensors at all")) is Code.SHC_TENSORS
    assert refused(*raw(tmp_path, b"")) is Code.SHC_TENSORS
    assert refused(manifest, tmp_path / "missing") is Code.STO_UNWRITABLE


def test_an_index_that_the_file_does_not_bear_out_is_refused(tmp_path: Path) -> None:
    _, path = raw(tmp_path)
    with FileRanges(path) as ranges:
        index = index_of(ranges)
    right = build_manifest(path, "policy", tensors=index)
    assert Manifest.parse(right.raw).header.tensors == index
    assert len(dict(shardcast.load(right, path))) == len(index)
    lie = Manifest.parse(right.raw.replace(b'"F16"', b'"I16"'))
    assert refused(lie, path) is Code.SHC_TENSORS


def test_a_delta_needs_the_parent_it_names_and_a_known_encoding(tmp_path: Path) -> None:
    manifest, path, held = encoded(tmp_path, FILE, save(MODEL | {"norm": torch.zeros(64)}))
    assert refused(manifest, path) is Code.SHC_ENCODING
    assert refused(manifest, path, parent=Held(path, bytes(32))) is Code.SHC_ENCODING
    other = Manifest.parse(manifest.raw.replace(b'"encoding":"delta"', b'"encoding":"future"'))
    assert refused(other, path, parent=held) is Code.SHC_ENCODING
    assert manifest.result_digest is not None
    lie = Manifest.parse(manifest.raw.replace(manifest.result_digest.hex().encode(), b"0" * 64))
    assert refused(lie, path, parent=held) is Code.SHC_ENCODING


def test_what_would_decode_to_more_than_there_is_memory_for_is_refused(tmp_path: Path) -> None:
    manifest, path, _ = encoded(tmp_path, FILE)
    size = b'"result_size":%d' % len(FILE)
    huge = Manifest.parse(manifest.raw.replace(size, b'"result_size":%d' % (1 << 44)))
    assert refused(huge, path) in (Code.SYS_MEMORY, Code.SHC_ENCODING)  # as the machine allots memory
    assert "accepted" in str(
        Expect(publisher=PeerId("x"), max_bytes=1 << 30, encodings=ENCODINGS).objection("policy", huge.header)
    )


def test_arrivals_join_whatever_their_order() -> None:
    arrivals = Arrivals()
    for start in [3, 0, 1, 4, 2, 2, 9, 1]:
        arrivals.add(start * 10, start * 10 + 10)
    arrivals.wait(0, 50)
    arrivals.wait(95, 100)
    arrivals.wait(70, 70)
    arrivals.fail(NodeError(Code.SHC_NO_HOLDER, "No."))
    for start, end in ((45, 60), (50, 51), (89, 91), (0, 100)):
        with pytest.raises(NodeError):
            arrivals.wait(start, end)


def test_the_example_of_the_document_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "shardcast.md").read_text(encoding="utf-8")
    section = page[page.index("## Deltas and snapshots") :]
    example: dict[str, Any] = {}
    exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], example)  # type: ignore[index]
    old = save(MODEL | {"norm": torch.zeros(64)})
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "new").write_bytes(FILE)
    held = Held(tmp_path / "old", file_digest(old))
    manifest = example["publish"](tmp_path / "new", held, tmp_path)
    model: dict[str, torch.Tensor] = {}
    example["receive"](manifest, tmp_path / "delta", held, model)
    assert manifest.size < 1000 and same(model["norm"], MODEL["norm"])
