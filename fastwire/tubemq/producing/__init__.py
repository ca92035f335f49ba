"""The state of a producer, and its messages in flight."""
