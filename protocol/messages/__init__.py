"""The message SDK: classes as contracts, standard protobuf as bytes."""

from protocol.messages.declaration import Asks, field, message, part, request, topic
from protocol.messages.describe import describe
from protocol.messages.registry import REGISTRY, Plane, Registry, Role, Spec, spec_of
from protocol.messages.wire import decode, encode

__all__ = [
    "REGISTRY",
    "Asks",
    "Plane",
    "Registry",
    "Role",
    "Spec",
    "decode",
    "describe",
    "encode",
    "field",
    "message",
    "part",
    "request",
    "spec_of",
    "topic",
]
