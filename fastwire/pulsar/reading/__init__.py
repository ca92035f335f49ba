"""Pulsar's hot path: entries into columns, and what the loop in C leaves to Python."""
