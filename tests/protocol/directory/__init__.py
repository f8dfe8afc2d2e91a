"""Tests of the directory: real hivemind processes on loopback."""
