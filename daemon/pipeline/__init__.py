"""A pipeline: it takes chunks from a source, rolls them into a sink, and acknowledges what has landed."""
