"""Spark and what is landed: a job from a dataset into a table (``job``), run by the command line or spark-submit.

Driver: ``job`` plans and runs, ``source`` and ``decode`` make the frame, ``output`` commits. Executors: ``task`` writes
files, ``avro`` and ``protobuf`` decode. PySpark is imported by functions, so that a message can say that it is missing.
"""
