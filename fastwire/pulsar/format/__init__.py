"""Pulsar's wire format: commands, metadata, payloads."""
