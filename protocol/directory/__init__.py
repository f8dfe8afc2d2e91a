"""The directory: signed, expiring peer records that any live peer leads to. See :class:`Directory`."""

from protocol.directory.client import Directory
from protocol.directory.records import PeerRecord

__all__ = ["Directory", "PeerRecord"]
