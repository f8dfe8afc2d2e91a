"""What tests of a handler need: real endpoints on loopback that trust one another."""

from protocol.testing.local import RUN, everybody, introduce, local_endpoints, make_node

__all__ = ["RUN", "everybody", "introduce", "local_endpoints", "make_node"]
