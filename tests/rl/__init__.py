"""Tests of rl."""
