from typing import Any

import pytest

from protocol.errors import Code, NodeError
from protocol.identity import Identity
from shardcast.building import build_manifest
from shardcast.expect import Expect
from shardcast.header import Decoded

CONTENT = bytes(range(200))
MANIFEST = build_manifest(CONTENT, "a", 64, version="3")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"version": "1"},
        {"manifest_digest": b"short"},
        {"shard_hashes": [b"short"]},
        {"shard_hashes": [bytes(32)], "shard_sizes": [1, 2]},
        {"shard_hashes": [bytes(32)], "shard_sizes": [0]},
        {"shard_hashes": [bytes(32)], "shard_sizes": [1 << 40]},
    ],
)
def test_an_expectation_that_expects_nothing_or_nonsense_cannot_be_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Expect(**fields)


@pytest.mark.parametrize(
    "expect",
    [
        Expect(manifest_digest=bytes(32)),
        Expect(shard_hashes=[bytes(32)] * 4),
        Expect(shard_hashes=[s.digest for s in MANIFEST.shards][::-1]),
        Expect(manifest_digest=MANIFEST.digest, shard_sizes=[50] * 4),
        Expect(manifest_digest=MANIFEST.digest, version="2"),
        Expect(manifest_digest=MANIFEST.digest, max_bytes=199),
        Expect(manifest_digest=MANIFEST.digest, publisher=Identity.ephemeral().peer_id),
    ],
)
def test_all_that_is_expected_must_hold(expect: Expect) -> None:
    with pytest.raises(NodeError) as caught:
        expect.judge("a", MANIFEST.raw)
    assert caught.value.code is Code.SHC_MANIFEST


def test_a_manifest_that_is_as_expected_becomes_the_plan() -> None:
    expect = Expect(
        manifest_digest=MANIFEST.digest,
        shard_hashes=[s.digest for s in MANIFEST.shards],
        version="3",
        max_bytes=200,
    )
    plan = expect.judge("a", MANIFEST.raw)
    assert plan.shards == MANIFEST.shards and plan.whole == MANIFEST.result_digest


def test_hashes_with_sizes_are_a_plan_by_themselves() -> None:
    plan = Expect(
        shard_hashes=[s.digest for s in MANIFEST.shards], shard_sizes=[s.size for s in MANIFEST.shards]
    ).known("a")
    assert plan is not None and plan.shards == MANIFEST.shards and plan.manifest_digest == b""


def test_an_encoding_is_taken_only_where_it_is_wanted() -> None:
    decoded = Decoded("delta", 9, bytes(32), parent=b"p" * 32)
    other = build_manifest(b"content", "a", decoded=decoded).raw
    with pytest.raises(NodeError) as caught:
        Expect(verify=lambda _: True).judge("a", other)
    assert "delta" in caught.value.sentence
    assert Expect(verify=lambda _: True, encodings=("raw", "delta")).judge("a", other).size == 7
