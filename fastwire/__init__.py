"""Bytes of message brokers to meaning: pure computation, no socket, no clock, no event loop."""

__all__ = ["__version__"]

__version__ = "0.1.0"
