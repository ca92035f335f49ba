"""Spark jobs of a configuration: they read topics or landed datasets and write tables."""
