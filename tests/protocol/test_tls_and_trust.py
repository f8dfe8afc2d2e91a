"""Certificates that are safe to trust, and who is trusted."""

import ssl
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.tls import fingerprint_of, make_certificate
from protocol.trust import Trust
from protocol.units import Address

ANA = Identity.ephemeral(b"a" * 32).peer_id
BEN = Identity.ephemeral(b"b" * 32).peer_id
HERE = (Address("127.0.0.1", 1000),)


def certificate(
    name: str = ANA, *, curve: ec.EllipticCurve | None = None, authority: bool = False, stranger: bool = False
) -> bytes:
    key = ec.generate_private_key(curve or ec.SECP256R1())
    signing = ec.generate_private_key(ec.SECP256R1()) if stranger else key
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(signing, hashes.SHA256())
    )
    return built.public_bytes(Encoding.PEM)


def test_every_process_has_a_certificate_of_its_own() -> None:
    one, two = make_certificate(ANA), make_certificate(ANA)
    assert one.certificate_pem != two.certificate_pem
    assert one.fingerprint == fingerprint_of(one.certificate_pem) != two.fingerprint
    assert "PRIVATE" not in repr(one)


def test_a_known_peer_is_found_by_its_certificate_however_it_is_written() -> None:
    trust, tls = Trust(), make_certificate(ANA)
    trust.learn(ANA, tls.certificate_pem, HERE)
    assert trust.peer_of_certificate(tls.certificate_pem) == ANA
    rewrapped = ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(tls.certificate_pem.decode())).encode()
    assert trust.peer_of_certificate(rewrapped.replace(b"\n", b"\r\n")) == ANA
    assert trust.addresses(ANA) == HERE
    assert trust.certificate(ANA) == tls.certificate_pem
    assert trust.known() == (ANA,)
    assert tls.certificate_pem in trust.pem_bundle()


def test_a_stranger_and_garbage_are_nobody() -> None:
    trust = Trust()
    for pem in (make_certificate(ANA).certificate_pem, b"", b"garbage", b"\xff"):
        assert trust.peer_of_certificate(pem) is None
    assert trust.addresses(ANA) == ()
    assert trust.certificate(ANA) is None


def test_a_restarted_peer_replaces_its_certificate() -> None:
    trust, old, new = Trust(), make_certificate(ANA), make_certificate(ANA)
    trust.learn(ANA, old.certificate_pem, HERE)
    trust.learn(ANA, new.certificate_pem, HERE)
    assert trust.peer_of_certificate(old.certificate_pem) is None
    assert trust.peer_of_certificate(new.certificate_pem) == ANA


def test_a_forgotten_peer_is_nobody() -> None:
    trust, tls = Trust(), make_certificate(ANA)
    trust.learn(ANA, tls.certificate_pem, HERE)
    trust.forget(ANA)
    trust.forget(BEN)
    assert trust.peer_of_certificate(tls.certificate_pem) is None
    assert trust.pem_bundle() == b""


def test_the_version_tells_whether_anything_changed() -> None:
    trust, tls = Trust(), make_certificate(ANA)
    trust.learn(ANA, tls.certificate_pem, HERE)
    version = trust.version
    trust.learn(ANA, tls.certificate_pem, HERE)
    assert trust.version == version
    trust.learn(ANA, tls.certificate_pem, ())
    assert trust.version > version


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"garbage",
        b"x" * 100_000,
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        certificate(BEN),
        certificate(curve=ec.SECP384R1()),
        certificate(authority=True),
        certificate(stranger=True),
    ],
    ids=["empty", "garbage", "huge", "no-der", "of-another", "other-curve", "authority", "not-self-signed"],
)
def test_a_certificate_that_would_harm_others_is_never_trusted(pem: bytes) -> None:
    trust = Trust()
    with pytest.raises(NodeError) as caught:
        trust.learn(ANA, pem, HERE)
    assert caught.value.code is Code.DIR_RECORD
    assert trust.pem_bundle() == b""


def test_a_certificate_with_a_key_of_an_unknown_kind_is_never_trusted() -> None:
    trust = Trust()
    der = ssl.PEM_cert_to_DER_cert(certificate().decode())
    kind = bytes.fromhex("2a8648ce3d0201")  # an elliptic curve's public key
    assert kind in der
    pem = ssl.DER_cert_to_PEM_cert(der.replace(kind, bytes.fromhex("2a8648ce3c0201"))).encode()
    with pytest.raises(NodeError) as caught:
        trust.learn(ANA, pem, HERE)
    assert caught.value.code is Code.DIR_RECORD


def test_nothing_rides_along_with_a_certificate() -> None:
    trust = Trust()
    trust.learn(ANA, certificate() + certificate(BEN), HERE)
    assert trust.pem_bundle().count(b"BEGIN") == 1
