"""Tests of rl/work."""
