"""Bundles of messages, and the state of a producer."""
