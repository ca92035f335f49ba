"""Kafka's wire format: layouts of requests and responses, error codes."""
