"""Kafka's connections, driven: settings, links, the cluster. Sources and producers stand on it."""
