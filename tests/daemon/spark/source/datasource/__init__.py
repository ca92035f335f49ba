"""The source as Spark calls it, called without Spark."""
