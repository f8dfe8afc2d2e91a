"""Benchmarks: one file each, see runner.py for the contract."""
