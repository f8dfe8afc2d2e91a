"""Tests of rl/rollouts."""
