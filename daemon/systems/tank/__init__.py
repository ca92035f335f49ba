"""TANK in the daemon: connections, source, reader and producer."""
