"""Content-addressed broadcast of large files: manifests, shards from many holders, nothing believed unverified."""
