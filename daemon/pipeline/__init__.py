"""A pipeline: it takes chunks from a source, rolls them into a sink, and confirms what has landed."""
