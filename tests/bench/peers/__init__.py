"""Peer packages that benchmarks measure beside ours, each in an environment of its own."""
