import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from protocol.errors import Code, NodeError
from rl.rollouts.files import load, marker_of, store, write
from rl.rollouts.limits import Limits
from rl.rollouts.parquet import encode
from rl.rollouts.signing import Signed
from tests.rl.rollouts.making import ANA, BEN, groups, provenance

LIMITS = Limits()


def code_of(path: Path) -> Code:
    with pytest.raises(NodeError) as caught:
        load(path, LIMITS)
    return caught.value.code


def test_a_file_is_signed_by_its_worker_and_found_again(tmp_path: Path) -> None:
    signed = write(tmp_path / "a.parquet", provenance(), groups(7), ANA)
    data, found = load(tmp_path / "a.parquet", LIMITS)
    assert found == signed
    assert data == encode(provenance(), groups(7))


def test_a_file_without_its_marker_was_never_finished(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, provenance(), groups(7), ANA)
    marker_of(path).unlink()
    assert code_of(path) is Code.RL_FILE_UNREADABLE


def test_another_file_in_its_place_is_not_read_with_the_old_signature(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, provenance(), groups(7), ANA)
    path.write_bytes(encode(provenance(), groups(8)))
    assert code_of(path) is Code.RL_FILE_SIGNATURE


def test_the_signature_of_another_worker_is_none_of_this_one(tmp_path: Path) -> None:
    data = encode(provenance(), groups(7))
    signed = Signed.make(BEN, data)
    store(tmp_path / "a.parquet", data, replace(signed, signer=ANA.peer_id))
    assert code_of(tmp_path / "a.parquet") is Code.RL_FILE_SIGNATURE


def test_a_worker_signs_only_its_own_work(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not sign"):
        write(tmp_path / "a.parquet", provenance(), groups(7), BEN)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[1]", b'{"digest":"00","signature":"","signer":"x"}', b"[" * 1000]
)
def test_a_damaged_marker_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.parquet"
    write(path, provenance(), groups(7), ANA)
    marker_of(path).write_bytes(text)
    assert code_of(path) is Code.RL_FILE_SIGNATURE


def test_a_file_that_grew_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, provenance(), groups(7), ANA)
    os.truncate(path, LIMITS.file_bytes + 1)
    assert code_of(path) is Code.RL_FILE_TOO_LARGE


def test_rollouts_that_do_not_fit_their_provenance_are_not_written() -> None:
    (group,) = groups(7)
    with pytest.raises(ValueError, match="version"):
        encode(provenance(version=4), [group])
    bad = replace(group.rollouts[0], versions=np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="different length"):
        encode(provenance(), [replace(group, rollouts=(bad,))])
    with pytest.raises(ValueError, match="another position"):
        encode(provenance(), [replace(group, position=8)])
