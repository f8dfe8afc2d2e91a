"""Content-addressed broadcast of large files: manifests, shards from many holders, nothing believed unverified."""

from shardcast.client import FetchReport, Refusal, fetch
from shardcast.draw import Progress
from shardcast.expect import Expect
from shardcast.header import Header
from shardcast.manifest import Manifest, ManifestWriter, Shard, build_manifest
from shardcast.names import check_name, check_version
from shardcast.service import Service, attach
from shardcast.shelf import Shelf

__all__ = [
    "Expect",
    "FetchReport",
    "Header",
    "Manifest",
    "ManifestWriter",
    "Progress",
    "Refusal",
    "Service",
    "Shard",
    "Shelf",
    "attach",
    "build_manifest",
    "check_name",
    "check_version",
    "fetch",
]
