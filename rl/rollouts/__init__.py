"""Rollouts: what one is, and the signed Parquet files in which they travel."""
