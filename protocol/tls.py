"""The certificate of one process: a fresh P-256 key, self-signed, that names the node's peer id.

gRPC's TLS refuses Ed25519 certificates, so the node's own key cannot serve here; it signs the certificate instead, as
a field of the directory record. Nothing else vouches for it, and the validity dates span decades because freshness
comes from the record.
"""

import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from protocol import limits
from protocol.errors import Code, NodeError
from protocol.units import PeerId

_FROM = datetime(2020, 1, 1, tzinfo=UTC)
_UNTIL = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class TlsIdentity:
    """A private key and its certificate.

    Attributes:
        key_pem: The private key; it never leaves the process.
        certificate_pem: The certificate to publish.
        fingerprint: SHA-256 of the certificate's DER bytes.
    """

    key_pem: bytes = field(repr=False)
    certificate_pem: bytes
    fingerprint: bytes


def make_certificate(peer_id: PeerId) -> TlsIdentity:
    """A fresh key and certificate for one process of ``peer_id``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, peer_id)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(peer_id)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return TlsIdentity(key_pem, pem, fingerprint_of(pem))


def fingerprint_of(certificate_pem: bytes) -> bytes:
    """SHA-256 of the DER bytes of a certificate in PEM text.

    Raises:
        ValueError: If the text is not PEM.
    """
    return sha256(ssl.PEM_cert_to_DER_cert(certificate_pem.decode("ascii"))).digest()


def check_certificate(peer: PeerId, certificate_pem: bytes) -> bytes:
    """A certificate that somebody published, in the one form that is safe to trust.

    One bad certificate would spoil the whole bundle that a server trusts, and one that may sign others would widen
    it, so all of this is asked: a single self-signed P-256 certificate that names the peer and is no authority.

    Returns:
        The certificate as PEM text, written anew.

    Raises:
        NodeError: ``E-DIR-004`` if it is anything else.
    """
    try:
        if len(certificate_pem) > limits.MAX_CERTIFICATE:
            raise ValueError(f"it has {len(certificate_pem)} bytes")
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        key = certificate.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("its key is not P-256")
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if names.get_values_for_type(x509.DNSName) != [peer]:
            raise ValueError("it names somebody else")
        if certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            raise ValueError("it is an authority")
        certificate.verify_directly_issued_by(certificate)
        pem = certificate.public_bytes(Encoding.PEM)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (
        ValueError,
        TypeError,
        InvalidSignature,
        UnsupportedAlgorithm,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
    ) as error:
        why = str(error) or type(error).__name__
        raise NodeError(
            Code.DIR_RECORD, f"The certificate of {peer} is not valid: {why}.", peer=peer
        ) from error
    except ssl.SSLError as error:
        raise NodeError(Code.DIR_RECORD, f"The certificate of {peer} cannot be loaded.", peer=peer) from error
    return pem
