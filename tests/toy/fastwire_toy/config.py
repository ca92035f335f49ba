"""Configuration of the toy system, which has no keys of its own."""

from fastwire_daemon.config.connection import Connection
from fastwire_daemon.config.source import SubscribedSource

__all__ = ["CONNECTION", "SOURCE"]


class ToyConnection(Connection):
    """A connection to the broker of the toy system."""


class ToySourceConfig(ToyConnection, SubscribedSource):
    """Source of records: topics of the toy system."""


CONNECTION = ToyConnection
SOURCE = ToySourceConfig
