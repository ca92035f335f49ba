"""Pulsar's connections, driven: settings, links, lookups. Sources, producers and the client for people stand on it."""
