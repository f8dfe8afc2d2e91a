"""Tests of diloco."""
