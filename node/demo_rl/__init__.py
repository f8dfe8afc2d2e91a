"""`intellect-node demo --rl`: a policy learns from the rollouts of strangers, one of whom cheats."""
