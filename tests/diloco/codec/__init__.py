"""Tests of diloco.codec."""
