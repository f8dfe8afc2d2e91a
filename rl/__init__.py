"""Reinforcement learning: environments, rollouts, losses and validators. Nothing is here yet."""
