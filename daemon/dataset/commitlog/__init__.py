"""The commit log of a dataset: entries, their dead letters, chain and checkpoints, and a check that none is missing."""
