"""Fuzzing of every decoder of the system."""
