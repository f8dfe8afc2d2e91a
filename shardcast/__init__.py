"""Content-addressed broadcast of large files: manifests, shards from many holders, nothing believed unverified.

Between peers shards travel over gRPC (`fetch`, `attach`), from public servers over HTTP (`Origin`, `Relay`,
`fetch_version`). Names are loaded when they are used, so moving files over HTTP needs neither gRPC nor torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardcast.building import build_manifest
    from shardcast.client import FetchReport, Refusal, fetch
    from shardcast.draw import Progress
    from shardcast.encoding import Held, decode_file, encode_file
    from shardcast.expect import Expect
    from shardcast.header import Decoded, Header
    from shardcast.http.broadcasting import broadcast, initialize, shutdown
    from shardcast.http.door import Access
    from shardcast.http.fetching import Fetched, fetch_version, read_list, read_manifest
    from shardcast.http.origin import Origin, Publication, Published
    from shardcast.http.relay import Relay
    from shardcast.http.source import Source
    from shardcast.http.streaming import stream
    from shardcast.http.versions import Brought, Library, Publisher
    from shardcast.loading import load
    from shardcast.manifest import Manifest, ManifestWriter, Shard
    from shardcast.names import check_name, check_version
    from shardcast.ranges import Arrivals, FileRanges
    from shardcast.service import Service, attach
    from shardcast.shelf import Shelf
    from shardcast.stream import Parent
    from shardcast.ways import Offer, cheapest_way

_WHERE = {
    "client": ("FetchReport", "Refusal", "fetch"),
    "draw": ("Progress",),
    "encoding": ("Held", "decode_file", "encode_file"),
    "expect": ("Expect",),
    "header": ("Decoded", "Header"),
    "http.broadcasting": ("broadcast", "initialize", "shutdown"),
    "http.door": ("Access",),
    "http.fetching": ("Fetched", "fetch_version", "read_list", "read_manifest"),
    "http.origin": ("Origin", "Publication", "Published"),
    "http.relay": ("Relay",),
    "http.source": ("Source",),
    "http.streaming": ("stream",),
    "http.versions": ("Brought", "Library", "Publisher"),
    "loading": ("load",),
    "building": ("build_manifest",),
    "manifest": ("Manifest", "ManifestWriter", "Shard"),
    "names": ("check_name", "check_version"),
    "ranges": ("Arrivals", "FileRanges"),
    "service": ("Service", "attach"),
    "shelf": ("Shelf",),
    "stream": ("Parent",),
    "ways": ("Offer", "cheapest_way"),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "Access",
    "Arrivals",
    "Brought",
    "Decoded",
    "Expect",
    "FetchReport",
    "Fetched",
    "FileRanges",
    "Header",
    "Held",
    "Library",
    "Manifest",
    "ManifestWriter",
    "Offer",
    "Origin",
    "Parent",
    "Progress",
    "Publication",
    "Published",
    "Publisher",
    "Refusal",
    "Relay",
    "Service",
    "Shard",
    "Shelf",
    "Source",
    "attach",
    "broadcast",
    "build_manifest",
    "cheapest_way",
    "check_name",
    "check_version",
    "decode_file",
    "encode_file",
    "fetch",
    "fetch_version",
    "initialize",
    "load",
    "read_list",
    "read_manifest",
    "shutdown",
    "stream",
]


def __getattr__(name: str) -> Any:
    """Loads a name's module where it is used first."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
