"""The genesis: canonical bytes, one id, nothing accepted that is not exactly it."""

import json
from pathlib import Path

import pytest

from diloco.config import RunSections
from diloco.creation import create_genesis
from diloco.genesis import CorpusFile, Genesis
from protocol.errors import Code, NodeError
from protocol.units import PeerId

OPERATOR = "12D3KooW" + "A" * 44


def make_genesis(**changes: object) -> Genesis:
    fields: dict[str, object] = {
        "sections": RunSections(),
        "operator_root": OPERATOR,
        "parameters": 10,
        "layout_digest": "0" * 64,
        "initial_digest": "1" * 64,
        "tokenizer": '{"ä": 1}',
        "files": (
            CorpusFile(name="a.py", size=3, digest="2" * 64, part="train"),
            CorpusFile(name="b.py", size=3, digest="3" * 64, part="validation"),
        ),
    }
    return Genesis.model_validate({**fields, **changes})


def test_bytes_survive_a_round_trip_and_name_the_run() -> None:
    genesis = make_genesis()
    again = Genesis.parse(genesis.to_bytes())
    assert again == genesis
    assert again.run_id == genesis.run_id and len(genesis.run_id) == 64
    assert genesis.base == bytes.fromhex("1" * 64)


def test_chunks_too_small_for_the_model_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    model = {"hidden": 256, "layers": 2, "heads": 4, "kv_heads": 4, "vocab": 8192}
    sections = RunSections.model_validate({"model": model, "round": {"chunk": 256}})
    with pytest.raises(NodeError) as refused:
        create_genesis(sections, PeerId(OPERATOR), tmp_path)
    assert refused.value.code == Code.CFG_BAD_VALUE and "round.chunk to 512" in refused.value.fix


def test_any_change_gives_another_run() -> None:
    assert make_genesis(parameters=11).run_id != make_genesis().run_id


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema_version":' + b"9" * 10_000 + b"}",
        b'{"parameters":NaN}',
        make_genesis().to_bytes() + b" ",
        json.dumps(json.loads(make_genesis().to_bytes()), indent=1).encode(),
        make_genesis().to_bytes().replace(b'"parameters":10', b'"parameters":10.0'),
        make_genesis().to_bytes().replace(b'"parameters":10', b'"parameters":true'),
        make_genesis().to_bytes().replace(b'"parameters":10', b'"parameters":10,"more":1'),
        make_genesis().to_bytes().replace(b'"schema_version":1', b'"schema_version":2'),
        make_genesis().to_bytes().replace(b"b.py", b"a.py"),
    ],
)
def test_anything_but_canonical_bytes_is_refused_with_a_code(data: bytes) -> None:
    with pytest.raises(NodeError) as caught:
        Genesis.parse(data)
    assert caught.value.code is Code.CFG_GENESIS_INVALID


def test_a_genesis_beyond_its_bound_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diloco.genesis.MAX_GENESIS_BYTES", 10)
    with pytest.raises(NodeError, match="more than 10"):
        Genesis.parse(b"x" * 11)


def test_a_run_file_that_differs_is_named_key_by_key() -> None:
    other = RunSections.model_validate({"inner": {"lr": 0.5}, "round": {"chunk": 512}})
    assert make_genesis().mismatch(other) == ["inner.lr", "round.chunk"]
    assert make_genesis().mismatch(RunSections()) == []
