"""Reading topics, the same for all systems: partitions, first positions, lag."""
