"""Dead letters of a dataset: reading them, and writing them back to a topic."""
