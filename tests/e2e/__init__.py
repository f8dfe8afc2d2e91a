"""Daemons from end to end."""
