"""What a member keeps on disk: ledger and promise, reduced bytes, checkpoints. All of it survives ``kill -9``."""
