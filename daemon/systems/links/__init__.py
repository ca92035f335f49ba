"""Connections to brokers: opening, authentication, reconnecting, and the requests in flight."""
