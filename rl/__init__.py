"""Reinforcement learning: environments, engine, rollouts and proofs, validators, training."""
