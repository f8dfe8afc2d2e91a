"""Proofs of inference: field arithmetic, proof encoding and verification. Nothing is here yet."""
