"""Work for rollout workers: seeds nobody chooses, leases in counter order, quotas for who is new."""
