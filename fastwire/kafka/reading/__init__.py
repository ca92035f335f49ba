"""Kafka's hot path: fetched record batches into columns, and fetch sessions."""
