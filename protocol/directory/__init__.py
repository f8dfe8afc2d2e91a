"""The directory: signed, expiring peer records that any live peer leads to. See :class:`Directory`."""

from protocol.directory.client import DataPlane, Directory, RelayService
from protocol.directory.records import PeerRecord

__all__ = ["DataPlane", "Directory", "PeerRecord", "RelayService"]
