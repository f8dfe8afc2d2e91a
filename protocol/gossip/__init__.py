"""Gossip: small signed messages that reach every subscriber without anyone knowing everyone.

Importing this package does not import libp2p; only a started carrier does (:mod:`protocol.gossip.carrier`).
"""

from protocol.gossip.messages import AskRecent, HostCertificate, Recent
from protocol.gossip.topics import Carrier, Gossip

__all__ = ["AskRecent", "Carrier", "Gossip", "HostCertificate", "Recent"]
