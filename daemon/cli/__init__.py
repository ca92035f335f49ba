"""The command line ``fastwire-consume``: the commands and their output."""

from .app import main

__all__ = ["main"]
