"""Rollouts as the bytes of a Parquet file, and back: one row per rollout, one row group, the provenance in the footer.

Reading is bounded by what the footer declares, but a file may lie about its pages, so :func:`decode` of a stranger's
bytes goes first through a process with bounded memory (``rl/rollouts/reading.py``).
"""

import functools
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from protocol.errors import Code, NodeError
from rl.rollouts.limits import CONTAINER, FOOTER_BYTES, Limits
from rl.rollouts.provenance import from_json, to_json
from rl.rollouts.record import FINISHES, Group, Provenance, Rollout

_KEY = b"intellect.rollouts"
_MAGIC = b"PAR1"


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


_COLUMNS = pa.schema(
    [
        pa.field(name, kind, nullable=False)
        for name, kind in {
            "position": pa.int64(),
            "index": pa.int32(),
            "tokens": _list(pa.int32()),
            "sampled": _list(pa.bool_()),
            "logprobs": _list(pa.float32()),
            "versions": _list(pa.int32()),
            "proofs": _list(pa.binary()),
            "proof_versions": _list(pa.int32()),
            "reward": pa.float64(),
            "finish": pa.string(),
        }.items()
    ]
)
_PER_TOKEN = ("tokens", "sampled", "logprobs", "versions")
_PER_PROOF = ("proofs", "proof_versions")


def encode(provenance: Provenance, groups: Sequence[Group]) -> bytes:
    """The file's bytes.

    Raises:
        ValueError: A group has another version than the provenance, or arrays of a rollout differ in length.
    """
    for group in groups:
        if group.version != provenance.version:
            raise ValueError(f"position {group.position} is of version {group.version}")
        if any(rollout.position != group.position for rollout in group.rollouts):
            raise ValueError(f"a rollout of another position lies in group {group.position}")
    rows = [rollout for group in groups for rollout in group.rollouts]
    for row in rows:
        if {len(getattr(row, name)) for name in _PER_TOKEN} != {len(row.tokens)}:
            raise ValueError(f"rollout {row.index} of position {row.position} has arrays of different length")
    columns = [pa.array([getattr(row, field.name) for row in rows], type=field.type) for field in _COLUMNS]
    return _written(pa.Table.from_arrays(columns, schema=_COLUMNS), to_json(provenance))


def _written(table: pa.Table, provenance: bytes | None) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    ) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        if provenance is not None:
            writer.add_key_value_metadata({_KEY: provenance})
    return bytes(sink.getvalue())


@functools.cache
def _schema() -> Any:
    """The Parquet schema that every file has."""
    return pq.ParquetFile(pa.BufferReader(_written(_COLUMNS.empty_table(), None))).schema


def decode(data: bytes, limits: Limits) -> tuple[Provenance, tuple[Group, ...]]:
    """What a file holds.

    Groups are rows of one position that follow each other, as they are in the file; whether they are whole and in
    order is for the validator to say.

    Raises:
        NodeError: ``E-RL-001`` for what is not such a file, ``E-RL-002`` for one that holds too much.
        MemoryError: There is not enough for it.
    """
    provenance, table = unfold(data, limits)
    return provenance, tuple(_groups(table, provenance.version, limits))


def unfold(data: bytes, limits: Limits) -> tuple[Provenance, pa.Table]:
    """What a file holds, as columns: the part of reading that the library does.

    Raises:
        NodeError: As :func:`decode`.
        MemoryError: There is not enough for it.
    """
    check_envelope(data, limits)
    try:
        file = pq.ParquetFile(
            pa.BufferReader(data),
            thrift_string_size_limit=FOOTER_BYTES,
            thrift_container_size_limit=CONTAINER,
        )
        provenance = _footer(file, limits)
        table = file.read(use_threads=False)
        if not table.schema.equals(_COLUMNS):
            raise _bad("its footer contradicts itself about columns")
        table.validate(full=True)
        return provenance, table.combine_chunks()
    except MemoryError:  # Arrow's is an ArrowException, too
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        said = str(error).splitlines()[0][:120] if str(error) else "no reason given"
        raise _bad(f"it is damaged ({said})") from None


def check_envelope(data: bytes, limits: Limits) -> None:
    """Refuses what is too large or does not begin and end like a Parquet file; nothing is allocated.

    Raises:
        NodeError: ``E-RL-001`` or ``E-RL-002``.
    """
    if len(data) > limits.file_bytes:
        raise _too_much(f"its {len(data)} bytes", limits.file_bytes)
    if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC:
        raise _bad("it is not a whole Parquet file")
    footer = int.from_bytes(data[-8:-4], "little")
    if footer > FOOTER_BYTES:
        raise _too_much(f"its footer of {footer} bytes", FOOTER_BYTES)
    if footer > len(data) - 12:
        raise _bad("its footer is longer than the file")


def _bad(why: str) -> NodeError:
    return NodeError(Code.RL_FILE_UNREADABLE, f"A rollout file cannot be read: {why}.")


def _too_much(what: str, most: int) -> NodeError:
    return NodeError(
        Code.RL_FILE_TOO_LARGE, f"A rollout file is refused for {what}; at most {most} are allowed."
    )


def _footer(file: Any, limits: Limits) -> Provenance:
    """The provenance, once all that the footer declares is found to be within bounds."""
    meta = file.metadata
    if dict(meta.metadata or {}).keys() != {_KEY}:
        raise _bad("its footer does not hold a provenance and nothing else")
    if not file.schema.equals(_schema()):
        raise _bad("it has other columns than rollouts have")
    if meta.num_rows > limits.rollouts:
        raise _too_much(f"its {meta.num_rows} rollouts", limits.rollouts)
    if meta.num_row_groups != 1 or meta.row_group(0).num_rows != meta.num_rows:
        raise _bad("its rows do not lie in one row group")
    columns = [meta.row_group(0).column(number) for number in range(meta.num_columns)]
    for column in columns:
        name = column.path_in_schema.split(".")[0]
        most = limits.tokens + limits.rollouts if name in _PER_TOKEN + _PER_PROOF else limits.rollouts
        if not 0 <= column.num_values <= most:
            raise _too_much(f"{column.num_values} values in the column {name}", most)
    declared = sum(max(0, column.total_uncompressed_size) for column in columns)
    if declared > limits.decoded_bytes or any(column.total_uncompressed_size < 0 for column in columns):
        raise _too_much(f"{declared} bytes of columns", limits.decoded_bytes)
    return from_json(dict(meta.metadata)[_KEY])


def _groups(table: pa.Table, version: int, limits: Limits) -> Iterator[Group]:
    for position, rows in groupby(_rollouts(table, limits), key=lambda rollout: rollout.position):
        yield Group(position, version, tuple(rows))


def _rollouts(table: pa.Table, limits: Limits) -> list[Rollout]:
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    if any(column.null_count for column in columns.values()):
        raise _bad("a value is missing")
    offsets = {name: columns[name].offsets.to_numpy() for name in _PER_TOKEN + _PER_PROOF}
    for names, unit in ((_PER_TOKEN, "tokens"), (_PER_PROOF, "proofs")):
        lengths = np.diff(offsets[names[0]])
        if any(not np.array_equal(np.diff(offsets[name]), lengths) for name in names[1:]):
            raise _bad(f"its columns differ in the number of {unit}")
        longest = int(lengths.max(initial=0))
        if longest > limits.transcript:
            raise _too_much(f"a rollout of {longest} {unit}", limits.transcript)
    values = {
        name: columns[name].values.to_numpy(zero_copy_only=False) for name in (*_PER_TOKEN, "proof_versions")
    }
    proofs = columns["proofs"].values.to_pylist()
    if any(len(proof) > limits.proof_bytes for proof in proofs):
        raise _too_much("the length of a proof", limits.proof_bytes)
    plain = {name: columns[name].to_pylist() for name in ("position", "index", "reward", "finish")}
    if any(finish not in FINISHES for finish in plain["finish"]):
        raise _bad("a rollout ends in a way that there is none")
    if any(position < 0 for position in plain["position"]) or any(index < 0 for index in plain["index"]):
        raise _bad("a position or an index is below 0")

    def part(name: str, row: int) -> Any:
        start, end = offsets[name][row : row + 2]
        return values[name][start:end]

    rollouts = []
    for row in range(table.num_rows):
        first, last = offsets["proofs"][row : row + 2]
        rollouts.append(
            Rollout(
                position=plain["position"][row],
                index=plain["index"][row],
                tokens=part("tokens", row),
                sampled=part("sampled", row),
                logprobs=part("logprobs", row),
                versions=part("versions", row),
                proofs=tuple(proofs[first:last]),
                proof_versions=tuple(part("proof_versions", row).tolist()),
                reward=plain["reward"][row],
                finish=plain["finish"][row],
            )
        )
    return rollouts
