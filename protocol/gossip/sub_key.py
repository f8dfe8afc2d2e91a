"""The sub-key: a libp2p host has a key of its own, made anew in each process and signed by the node's.

The node's own key already names another host, the directory's network helper, and two hosts of one name would take
each other's connections. Both keys sign: the node's for the host's (it is mine), the host's for the node (I am its).
"""

from protocol.envelope import Sealed, seal, unseal
from protocol.errors import Code, NodeError
from protocol.gossip.messages import HostCertificate
from protocol.identity import Signer, Verifier, verify
from protocol.units import PeerId

_TAG = b"intellect-node gossip host 1\x00"


def certify_host(node: Signer, host: Signer, boot: bytes) -> Sealed[HostCertificate]:
    """The node's word that the host with that key is its own.

    Args:
        node: The node's key.
        host: The host's key.
        boot: The boot number of the node's process.
    """
    proof = host.sign(_said(node.peer_id, boot))
    return seal(node, None, HostCertificate(host=host.peer_id, boot=boot, proof=proof))


def node_of(raw: bytes, *, host: str, verifier: Verifier = verify) -> PeerId:
    """Whose host it is, from what the host shows.

    Args:
        raw: The certificate's envelope.
        host: Peer id of the host that shows it, as its connection proves.
        verifier: Checks the node's signature.

    Raises:
        NodeError: ``E-WIRE-005`` if it is another host's, or as :func:`protocol.envelope.unseal`.
    """
    sealed = unseal(raw, run=None, expect=HostCertificate, verifier=verifier)
    said = sealed.message
    if said.host != host or not verify(PeerId(host), _said(sealed.sender, said.boot), said.proof):
        raise NodeError(
            Code.WIRE_SIGNATURE, f"The host {host[:64]} shows the certificate of another.", peer=sealed.sender
        )
    return sealed.sender


def _said(node: PeerId, boot: bytes) -> bytes:
    return _TAG + node.encode() + b"\x00" + boot
