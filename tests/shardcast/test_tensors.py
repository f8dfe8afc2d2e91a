import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from protocol.errors import Code, NodeError
from shardcast import limits
from shardcast.tensors import TensorInfo, header_size, index_fields, index_from_fields, read_index

FILE = save(
    {"b": np.arange(6, dtype=np.float16).reshape(2, 3), "a": np.zeros((0, 4), np.uint8), "c": np.ones((), np.float32)},
    {"made": "by a test"},
)  # fmt: skip


def head_of(fields: Any) -> bytes:
    raw = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return len(raw).to_bytes(8, "little") + raw


def refused(head: bytes, size: int) -> str:
    with pytest.raises(NodeError) as caught:
        read_index(head, size)
    assert caught.value.code is Code.SHC_TENSORS
    return caught.value.sentence


def test_the_index_of_a_file_that_the_library_wrote_names_the_bytes_of_each_tensor() -> None:
    index = read_index(FILE[: header_size(FILE)], len(FILE))
    found = {info.name: info for info in index}
    assert {(info.name, info.dtype, info.shape, info.width) for info in index} == {
        ("a", "U8", (0, 4), 1), ("b", "F16", (2, 3), 2), ("c", "F32", (), 4)
    }  # fmt: skip
    assert np.frombuffer(FILE[found["b"].start : found["b"].end], np.float16).tolist() == [0, 1, 2, 3, 4, 5]
    assert index_from_fields(json.loads(json.dumps(index_fields(index))), len(FILE)) == index


def test_a_file_without_tensors_has_an_empty_index() -> None:
    empty = save({})
    assert read_index(empty, len(empty)) == () and index_from_fields({}, 99) == ()


def entry(start: int, end: int, **other: Any) -> dict[str, Any]:
    return {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]} | other


@pytest.mark.parametrize(
    ("fields", "data"),
    [
        ({"a": entry(0, 4), "b": entry(3, 7)}, 7),  # overlap
        ({"a": entry(0, 4), "b": entry(5, 7)}, 7),  # a hole
        ({"a": entry(1, 4)}, 4),
        ({"a": entry(0, 4)}, 3),  # leaves the file
        ({"a": entry(0, 4)}, 5),
        ({"a": entry(0, 4, shape=[5])}, 4),
        ({"a": entry(0, 4, shape=[2**43, 2**43, 0, 1])}, 4),
        ({"a": entry(0, 4, shape=[1] * 65 + [4])}, 4),
        ({"a": entry(0, 4, shape=[True, 4])}, 4),
        ({"a": entry(0, 4, shape=[-1, -4])}, 4),
        ({"a": entry(0, 4, dtype="U9")}, 4),
        ({"a": entry(0, 4, dtype=["U8"])}, 4),
        ({"a": entry(0, 4, data_offsets=[0])}, 4),
        ({"a": entry(0, 4, data_offsets=[4, 0])}, 4),
        ({"a": entry(0, 4, data_offsets=[0, 10**30])}, 4),
        ({"a": entry(0, 4, data_offsets="04")}, 4),
        ({"a" * 513: entry(0, 4)}, 4),
        ({"a": 7}, 0),
        ([], 0),
        (b'{"a":' + json.dumps(entry(0, 4)).encode() + b',"a":' + json.dumps(entry(0, 4)).encode() + b"}", 4),
        (b"[" * 100_000, 0),
        (b"{" + b"9" * 5000 + b"}", 0),
        (b"\xff\xfe{}", 0),
    ],
)
def test_an_index_that_breaks_a_rule_is_refused(fields: Any, data: int) -> None:
    head = head_of(fields)
    refused(head, len(head) + data)


@pytest.mark.parametrize("length", [0, 1, limits.MAX_TENSOR_HEADER + 1, 2**63, 2**64 - 1])
def test_the_length_of_a_header_is_bounded_before_anything_is_read(length: int) -> None:
    refused(length.to_bytes(8, "little") + b"{}", 1000)


def test_a_header_that_leaves_the_file_is_refused() -> None:
    head = head_of({})
    refused(head, len(head) - 1)
    refused(head[:-1], len(head))
    refused(b"", 0)


@given(
    st.dictionaries(
        st.text(max_size=8), st.sampled_from([[], ["BF16", [1], 0, 2], ["BF16", [1], 0, 3], 5, None])
    )
)
def test_fields_of_a_manifest_are_an_index_or_refused(fields: dict[str, Any]) -> None:
    try:
        index = index_from_fields(fields, 2)
    except NodeError as error:
        assert error.code is Code.SHC_TENSORS
        return
    assert index in ((), *((TensorInfo(name, "BF16", (1,), 0, 2),) for name in fields))


def test_ours_and_the_library_agree_on_a_real_file(tmp_path: Path) -> None:
    from safetensors import safe_open

    path = tmp_path / "file"
    path.write_bytes(FILE)
    with safe_open(path, "np") as file:
        assert {info.name for info in read_index(FILE, len(FILE))} == set(file.keys())
