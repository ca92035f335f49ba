"""Pulsar's protocol: commands, connections, consumers, acknowledgements."""
