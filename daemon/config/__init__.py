"""The configuration: reads TOML into frozen models.

:func:`load_config` reads a file, :func:`parse_config` a text. Both raise :class:`ConfigError`, for which the process
exits with code 78.
"""

from .brokers.access import AuthConfig, OAuth2Config, TlsConfig
from .brokers.connection import Connection
from .brokers.secured import Secured
from .brokers.source import SourceConfig, SubscribedSource, TopicChoice
from .brokers.sparksource import SparkBrokers, SparkDataset, SparkSource, SubscribedBrokers
from .model import Config, DaemonConfig, PipelineConfig, RollConfig, SinkConfig
from .parser import load_config, parse_config, parse_connection, parse_source
from .problem import ConfigError, Problem
from .schema import json_schema
from .spark import SparkConfig, SparkDecode, SparkDedupe, SparkOutput
from .values.address import HttpAddress, parse_url
from .values.end import End, parse_end
from .values.fields import Start, check_issuer_url, parse_start
from .values.machine import available_memory, cores
from .values.text import format_duration, format_size, parse_duration, parse_size

__all__ = [
    "AuthConfig",
    "Config",
    "ConfigError",
    "Connection",
    "DaemonConfig",
    "End",
    "HttpAddress",
    "OAuth2Config",
    "PipelineConfig",
    "Problem",
    "RollConfig",
    "Secured",
    "SinkConfig",
    "SourceConfig",
    "SparkBrokers",
    "SparkConfig",
    "SparkDataset",
    "SparkDecode",
    "SparkDedupe",
    "SparkOutput",
    "SparkSource",
    "Start",
    "SubscribedBrokers",
    "SubscribedSource",
    "TlsConfig",
    "TopicChoice",
    "available_memory",
    "check_issuer_url",
    "cores",
    "format_duration",
    "format_size",
    "json_schema",
    "load_config",
    "parse_config",
    "parse_connection",
    "parse_duration",
    "parse_end",
    "parse_size",
    "parse_source",
    "parse_start",
    "parse_url",
]
