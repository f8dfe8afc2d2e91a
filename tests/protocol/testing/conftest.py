"""The fixtures that the test kit offers, tested by being used."""

from protocol.testing.fixtures import signed_swarm, swarm, swarm_seed

__all__ = ["signed_swarm", "swarm", "swarm_seed"]
