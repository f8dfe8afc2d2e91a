"""The ways between peers: directly, or through a tunnel, which a relay may carry. See :mod:`protocol.paths.tunnel`."""

from protocol.paths.choice import Offer, Reach, Seen, Standing, Way, candidates, stand

__all__ = ["Offer", "Reach", "Seen", "Standing", "Way", "candidates", "stand"]
