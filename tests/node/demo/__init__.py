"""Tests of the demo against event logs that nobody lived."""
