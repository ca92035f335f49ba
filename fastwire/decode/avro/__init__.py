"""Avro: schemas, their resolution, and the compiled walk of values."""
