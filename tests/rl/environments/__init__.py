"""Tests of rl.environments."""
