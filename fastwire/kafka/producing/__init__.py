"""Record batches, and the state of a producer."""
