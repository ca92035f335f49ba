"""Erasure of rows: which rows a condition means, files without them, and their exchange."""
