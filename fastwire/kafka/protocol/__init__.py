"""Kafka's protocol: layouts of requests and responses, connections, cluster metadata."""
