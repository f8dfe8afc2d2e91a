"""What a node can do in a run: train, coordinate."""
