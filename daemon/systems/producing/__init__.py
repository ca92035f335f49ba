"""Writing to topics, the same for all systems."""
