"""Bounds of training."""

MAX_BATCH_BYTES = 2**30
"""Of a file with the rows of one inner step; some 25 bytes a token."""
MAX_POLICIES = 64
"""Policy versions that one piece of work may name."""
