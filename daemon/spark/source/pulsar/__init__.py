"""Pulsar for Spark: the requests of the driver (``driver``), and the reading of a range by a task (``rangereader``)."""
