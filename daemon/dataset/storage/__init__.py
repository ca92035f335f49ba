"""Storage of a dataset: a folder of a file system, or a prefix of an object store."""
