"""What rollouts do to the weights: advantages, losses, packed rows, the workers' objective, the warm start."""
