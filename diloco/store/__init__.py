"""What a member keeps on disk: the ledger with its promise, reduced bytes, checkpoints. All of it survives ``kill -9``."""
