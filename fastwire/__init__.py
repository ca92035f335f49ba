"""Sans-IO core of fastwire: protocols, state machines and columns, without sockets, clocks or an event loop."""

__all__ = ["__version__"]

__version__ = "0.1.0"
