"""Tests of shards over HTTP."""
