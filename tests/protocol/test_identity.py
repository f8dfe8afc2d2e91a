"""One key, one file, one name."""

import base64
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Code, NodeError
from protocol.identity import Identity, peer_id_of, public_key_of, verify
from protocol.units import PeerId


def test_the_peer_id_is_libp2ps_for_a_known_key() -> None:
    # libp2p specification, peer-ids, test vector of an Ed25519 private key: the last 32 bytes are the public key
    public = bytes.fromhex("1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e")
    assert peer_id_of(public) == "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"


@given(st.binary(min_size=32, max_size=32))
def test_a_peer_id_holds_its_key(public: bytes) -> None:
    peer = peer_id_of(public)
    assert peer.startswith("12D3KooW")
    assert public_key_of(peer) == public


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12D3KooW",
        "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3p0",
        "112D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq",
        "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq ",
        "z" * 1000,
        "ä" * 52,
    ],
)
def test_what_is_no_ed25519_peer_id_is_refused(text: str) -> None:
    with pytest.raises(NodeError) as caught:
        public_key_of(text)
    assert caught.value.code is Code.ID_BAD_PEER
    assert not verify(PeerId(text), b"data", bytes(64))


def test_a_signature_holds_for_its_signer_and_its_bytes_only() -> None:
    ours, other = Identity.ephemeral(), Identity.ephemeral()
    signature = ours.sign(b"data")
    assert verify(ours.peer_id, b"data", signature)
    assert not verify(ours.peer_id, b"Data", signature)
    assert not verify(other.peer_id, b"data", signature)
    assert not verify(ours.peer_id, b"data", signature[:-1])
    assert not verify(ours.peer_id, b"data", b"")


def test_a_seed_always_makes_the_same_identity() -> None:
    assert Identity.ephemeral(b"7" * 32).peer_id == Identity.ephemeral(b"7" * 32).peer_id
    assert Identity.ephemeral().peer_id != Identity.ephemeral().peer_id


def test_an_identity_shows_no_secret() -> None:
    identity = Identity.ephemeral(b"secret" + bytes(26))
    assert "secret" not in repr(identity)


def test_a_stored_identity_is_read_back_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "identity.key"
    made = Identity.create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Identity.load(path).peer_id == made.peer_id
    assert os.listdir(path.parent) == ["identity.key"]


def test_a_key_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Identity.create(tmp_path / "key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_creating_never_replaces_a_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = Identity.create(path)
    with pytest.raises(NodeError) as caught:
        Identity.create(path)
    assert caught.value.code is Code.ID_UNREADABLE
    assert Identity.load(path).peer_id == made.peer_id
    assert os.listdir(tmp_path) == ["key"]


def test_load_or_create_makes_one_and_then_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert Identity.load_or_create(path).peer_id == Identity.load_or_create(path).peer_id


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o601])
def test_a_key_file_that_others_can_reach_is_refused_with_the_fix(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    Identity.create(path)
    path.chmod(mode)
    with pytest.raises(NodeError) as caught:
        Identity.load(path)
    assert caught.value.code is Code.ID_PERMISSIONS
    assert f"chmod 600 {path}" in caught.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "",
        "intellect-node identity 1",
        "intellect-node identity 1\n",
        "intellect-node identity 1\nAAAA\n",
        "intellect-node identity 1\n!!!!\n",
        f"intellect-node identity 2\n{base64.b64encode(bytes(32)).decode()}\n",
        f"intellect-node identity 1\n{base64.b64encode(bytes(32)).decode()}\nmore",
        "x" * 10_000,
    ],
)
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(NodeError) as caught:
        Identity.load(path)
    assert caught.value.code is Code.ID_UNREADABLE


def test_a_missing_key_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(NodeError) as caught:
        Identity.load(tmp_path / "none")
    assert caught.value.code is Code.ID_UNREADABLE
    assert str(tmp_path / "none") in caught.value.sentence


def test_a_folder_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NodeError) as caught:
        Identity.create(tmp_path / "file" / "key")
    assert caught.value.code is Code.STO_UNWRITABLE
