"""TANK for Spark: the driver discovers partitions, the executors fetch ranges of sequences."""
