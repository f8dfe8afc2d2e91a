"""Shards over HTTP: an origin publishes, relays pass on, clients fetch. None of it needs torch or gRPC."""
