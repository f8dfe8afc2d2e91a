"""Tests of the repository itself: what it ships, says and promises."""
