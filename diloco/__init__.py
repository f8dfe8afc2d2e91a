"""Training: elastic mesh, round machine, all-reduce, codecs, inner worker, outer optimizer, data, checkpoints."""
