import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Code, NodeError
from rl.rollouts.limits import FOOTER_BYTES, Limits
from rl.rollouts.parquet import decode, encode
from rl.rollouts.provenance import from_json, to_json
from tests.rl.rollouts.making import groups, plain, provenance

LIMITS = Limits()


def refusal(data: bytes, limits: Limits = LIMITS) -> NodeError:
    with pytest.raises(NodeError) as caught:
        decode(data, limits)
    return caught.value


def rewritten(change: Any = lambda table: table, key: bytes = b"intellect.rollouts", **options: Any) -> bytes:
    """A file as another writer would make it, from an honest one."""
    data = encode(provenance(), groups(7, 8))
    table = change(pq.read_table(pa.BufferReader(data)).replace_schema_metadata(None))
    sink = pa.BufferOutputStream()
    options = {"compression": "zstd", "use_dictionary": False, "store_schema": False, **options}
    rows = options.pop("row_group_size", None)
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=rows)
        writer.add_key_value_metadata({key: to_json(provenance())})
    return bytes(sink.getvalue())


@settings(max_examples=40, deadline=None)
@given(
    positions=st.lists(st.integers(0, 2**62), max_size=4, unique=True),
    size=st.integers(1, 4),
    prompt=st.integers(1, 70),
    sampled=st.integers(0, 70),
)
def test_what_is_written_is_read_again_to_the_last_bit(
    positions: list[int], size: int, prompt: int, sampled: int
) -> None:
    written = groups(*positions, size=size, prompt=prompt, sampled=sampled)
    held, found = decode(encode(provenance(), written), LIMITS)
    assert held == provenance()
    assert plain(found) == plain(written)


def test_what_another_writer_makes_in_the_same_form_is_read() -> None:
    assert plain(decode(rewritten(), LIMITS)[1]) == plain(groups(7, 8))
    for compression in ("none", "gzip", "snappy"):
        assert plain(decode(rewritten(compression=compression), LIMITS)[1]) == plain(groups(7, 8))


def test_nan_log_probabilities_are_read_and_left_to_the_validator() -> None:
    (group,) = groups(7)
    group.rollouts[0].logprobs[:] = np.nan
    assert np.isnan(decode(encode(provenance(), [group]), LIMITS)[1][0].rollouts[0].logprobs).all()


def test_every_truncated_file_is_refused() -> None:
    data = encode(provenance(), groups(7, sampled=3))
    for length in range(len(data)):
        assert refusal(data[:length]).code is Code.RL_FILE_UNREADABLE


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.drop_columns(["reward"]),
        lambda table: table.append_column("more", pa.array([1] * table.num_rows)),
        lambda table: table.rename_columns([*table.column_names[:-1], "end"]),
        lambda table: table.set_column(0, "position", table["position"].cast(pa.int32())),
        lambda table: table.set_column(0, "position", pa.array([None] * table.num_rows, pa.int64())),
        lambda table: table.select(table.column_names[::-1]),
    ],
    ids=["a column less", "one more", "another name", "another type", "may be missing", "another order"],
)
def test_another_schema_is_refused(change: Any) -> None:
    error = refusal(rewritten(change))
    assert (error.code, "other columns" in error.sentence) == (Code.RL_FILE_UNREADABLE, True)


@pytest.mark.parametrize("options", [{"row_group_size": 1}, {"store_schema": True}])
def test_several_row_groups_and_foreign_metadata_are_refused(options: dict[str, Any]) -> None:
    assert refusal(rewritten(**options)).code is Code.RL_FILE_UNREADABLE


def test_a_file_without_provenance_is_refused() -> None:
    assert "provenance" in refusal(rewritten(key=b"other")).sentence


def test_a_million_token_completion_is_refused_by_the_footer_before_it_is_unfolded() -> None:
    data = encode(provenance(), groups(7, size=1, sampled=1_000_000))
    assert refusal(data, Limits(tokens=500_000)).code is Code.RL_FILE_TOO_LARGE
    assert refusal(data, Limits(decoded_bytes=1_000_000)).code is Code.RL_FILE_TOO_LARGE
    assert "rollout of 1000005 tokens" in refusal(data, Limits(tokens=2_000_000)).sentence


def test_each_limit_is_exact() -> None:
    data = encode(provenance(), groups(7, size=3, prompt=5, sampled=40))
    exact = Limits(rollouts=3, transcript=45, file_bytes=len(data), proof_bytes=258, tokens=132)
    decode(data, exact)  # the columns of 135 tokens may hold 132 values and one for each rollout
    for name in ("rollouts", "transcript", "file_bytes", "proof_bytes", "tokens"):
        less = Limits(**{**vars(exact), name: getattr(exact, name) - 1})
        assert refusal(data, less).code is Code.RL_FILE_TOO_LARGE, name


def test_a_footer_that_claims_to_be_huge_is_refused_before_it_is_read() -> None:
    data = bytearray(encode(provenance(), groups(7)))
    data[-8:-4] = (FOOTER_BYTES + 1).to_bytes(4, "little")
    assert refusal(bytes(data)).code is Code.RL_FILE_TOO_LARGE
    data[-8:-4] = (len(data)).to_bytes(4, "little")
    assert "longer than the file" in refusal(bytes(data)).sentence


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2}, {"run": "x"}, {"worker": "nobody"}, {"counter": -1}, {"version": 1.5}, {"weights": "00"},
        {"more": 1}, {"environment": None}, {"sampling": {}}, {"sampling": 3},
    ],
    ids=str,
)  # fmt: skip
def test_a_provenance_with_a_wrong_field_is_refused(change: dict[str, Any]) -> None:
    text = json.dumps({**json.loads(to_json(provenance())), **change}, sort_keys=True, separators=(",", ":"))
    with pytest.raises(NodeError) as caught:
        from_json(text.encode())
    assert caught.value.code is Code.RL_FILE_UNREADABLE


def test_a_provenance_is_written_in_one_way_only() -> None:
    assert from_json(to_json(provenance())) == provenance()
    for text in (to_json(provenance()) + b" ", b"[" * 5000, b"\xff", b"[]", b" " * (1 << 15)):
        with pytest.raises(NodeError):
            from_json(text)
