"""Tests of rl/validation."""
