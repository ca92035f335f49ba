"""Spark itself, as a reader of what was landed and as the engine of the job."""
