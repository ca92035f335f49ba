"""Configuration of the toy system: the keys that all systems share, and advice about those that it lacks."""

from collections.abc import Mapping
from typing import ClassVar

from fastwire_daemon.config.brokers.connection import Connection
from fastwire_daemon.config.brokers.source import SourceConfig


class ToyConnection(Connection):
    """A connection to the broker of the toy system."""

    lacks: ClassVar[Mapping[str, str]] = {"tls": "the protocol has no TLS, use a tunnel"}


class ToySourceConfig(ToyConnection, SourceConfig):
    """Source of records: topics of the toy system."""


CONNECTION = ToyConnection
SOURCE = ToySourceConfig
