"""Content-addressed broadcast of large files: manifests, shards from many holders, nothing believed unverified."""

from shardcast.client import FetchReport, Refusal, fetch
from shardcast.draw import Progress
from shardcast.encoding import Held, decode_file, encode_file
from shardcast.expect import Expect
from shardcast.header import Decoded, Header
from shardcast.loading import load
from shardcast.manifest import Manifest, ManifestWriter, Shard, build_manifest
from shardcast.names import check_name, check_version
from shardcast.ranges import Arrivals, FileRanges
from shardcast.service import Service, attach
from shardcast.shelf import Shelf
from shardcast.ways import Offer, cheapest_way

__all__ = [
    "Arrivals",
    "Decoded",
    "Expect",
    "FetchReport",
    "FileRanges",
    "Header",
    "Held",
    "Manifest",
    "ManifestWriter",
    "Offer",
    "Progress",
    "Refusal",
    "Service",
    "Shard",
    "Shelf",
    "attach",
    "build_manifest",
    "cheapest_way",
    "check_name",
    "check_version",
    "decode_file",
    "encode_file",
    "fetch",
    "load",
]
