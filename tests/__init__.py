"""Tests mirror the packages; see CONTRIBUTING.md."""
