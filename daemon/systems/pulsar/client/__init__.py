"""The asyncio client of Apache Pulsar. Users import it from ``fastwire_daemon.pulsar``."""
