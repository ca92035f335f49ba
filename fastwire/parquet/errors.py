"""Errors of the encoder of Parquet files."""


class UnwritableError(ValueError):
    """A column has a type that these Parquet files do not hold, or a value that its type cannot; the text names it."""
