"""What the package offers at its door."""

import subprocess
import sys

import pytest

import protocol
from protocol.testing import introduce, make_node


def test_the_decorators_are_at_the_door() -> None:
    from protocol.messages import declaration

    for name in protocol.__all__:
        assert getattr(protocol, name) is getattr(declaration, name)
    with pytest.raises(AttributeError):
        protocol.no_such_thing  # noqa: B018


def test_an_error_code_costs_no_protobuf_and_no_grpc() -> None:
    code = (
        "import sys, protocol.errors, protocol.units;"
        "sys.exit(any(name in sys.modules for name in ('grpc', 'google.protobuf')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_seeded_node_always_has_the_same_identity_and_never_the_same_certificate() -> None:
    one, same = make_node(seed=1), make_node(seed=1)
    assert one.peer_id == same.peer_id
    assert one.tls.fingerprint != same.tls.fingerprint
    introduce(one, make_node(seed=2))
    assert one.trust.known() == (make_node(seed=2).peer_id,)
