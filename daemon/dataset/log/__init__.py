"""The log of a dataset: entries, their dead letters and chain, checkpoints, and the check that none is missing."""
