"""JSON: schemas, and the compiled walk of values."""
