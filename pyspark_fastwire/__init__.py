"""Found by Spark by its name: makes ``format("fastwire")`` known without a word (PySpark 4.0 and later)."""

from fastwire_daemon.spark.register import FastwireSource as DefaultSource

__all__ = ["DefaultSource"]
