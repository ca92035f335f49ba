"""Encoders: they turn record batches into files."""
