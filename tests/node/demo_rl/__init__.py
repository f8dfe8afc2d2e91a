"""Tests of node.demo_rl."""
