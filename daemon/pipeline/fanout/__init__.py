"""A pipeline with a dataset for each topic: one source, and a pipeline for each dataset that shares it."""
