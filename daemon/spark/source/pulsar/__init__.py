"""Pulsar for Spark: what the driver asks brokers (``driver``), and how a task reads a range (``reading``)."""
