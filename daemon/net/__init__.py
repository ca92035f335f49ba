"""Connections: sockets, endpoints, TLS, credentials and the pauses between attempts."""
