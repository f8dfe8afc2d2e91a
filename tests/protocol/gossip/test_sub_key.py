import secrets

import pytest

from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.gossip import HostCertificate
from protocol.gossip.sub_key import certify_host, node_of
from protocol.identity import Identity

NODE, HOST, THIEF = Identity.ephemeral(), Identity.ephemeral(), Identity.ephemeral()
BOOT = secrets.token_bytes(16)


def test_both_keys_say_that_the_host_is_the_nodes() -> None:
    certificate = certify_host(NODE, HOST, BOOT)
    assert certificate.sender == NODE.peer_id
    assert node_of(certificate.raw, host=HOST.peer_id) == NODE.peer_id


def test_a_host_cannot_show_the_certificate_of_another() -> None:
    with pytest.raises(NodeError) as caught:
        node_of(certify_host(NODE, HOST, BOOT).raw, host=THIEF.peer_id)
    assert caught.value.code is Code.WIRE_SIGNATURE


def test_a_node_cannot_claim_the_host_of_another() -> None:
    stolen = certify_host(NODE, HOST, BOOT).message
    claimed = seal(THIEF, None, HostCertificate(host=HOST.peer_id, boot=BOOT, proof=stolen.proof))
    with pytest.raises(NodeError) as caught:
        node_of(claimed.raw, host=HOST.peer_id)
    assert caught.value.code is Code.WIRE_SIGNATURE


@pytest.mark.parametrize("position", [1, 40, -1])
def test_a_changed_certificate_is_refused(position: int) -> None:
    raw = bytearray(certify_host(NODE, HOST, BOOT).raw)
    raw[position] ^= 1
    with pytest.raises(NodeError):
        node_of(bytes(raw), host=HOST.peer_id)
