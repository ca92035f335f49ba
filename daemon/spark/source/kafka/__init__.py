"""Kafka for Spark: the driver requests offsets, the executors fetch ranges."""
